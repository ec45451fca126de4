/* SPDX-License-Identifier: MIT */
#ifndef SD_ENGINE_MEMORY_H
#define SD_ENGINE_MEMORY_H

#include "include/skipdecode/skipdecode.h"

/* Bytes of activations and logits that a session's largest pass so far has asked for; caches are counted apart, by
 * sd_session_kv_bytes. */
size_t sd_session_scratch_bytes(const sd_session *session);

#endif
