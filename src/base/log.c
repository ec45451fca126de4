/* SPDX-License-Identifier: MIT */
#include "src/base/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "include/skipdecode/skipdecode.h"
#include "src/base/cpu.h"

static void (*log_handler)(void *user, const char *message);
static void *log_user;

void sd_set_log(void (*log)(void *user, const char *message), void *user)
{
    log_handler = log;
    log_user = user;
}

void sd_warn(const char *format, ...)
{
    if (!log_handler) {
        return;
    }
    char message[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    log_handler(log_user, message);
}

const char *sd_version(void) { return SD_VERSION; }

const char *sd_cpu_level(void)
{
    sd_cpu_level_id level;
    return sd_cpu_level_name(sd_cpu_select(&level, NULL) == SD_OK ? level : sd_cpu_detect());
}
