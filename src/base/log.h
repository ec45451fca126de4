/* SPDX-License-Identifier: MIT */
#ifndef SD_BASE_LOG_H
#define SD_BASE_LOG_H

/* Hands one formatted sentence to the handler of sd_set_log; nothing happens without one. For what a user should know
 * but need not act on; what stops the work is an sd_error. */
void sd_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
