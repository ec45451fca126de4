/* SPDX-License-Identifier: MIT
 *
 * Text with fields: "{name}" stands for a value, {{ and }} for braces. */
#ifndef SD_BASE_TEMPLATE_H
#define SD_BASE_TEMPLATE_H

#include "src/base/buf.h"
#include "src/base/error.h"

/* The value of a field, [*len] bytes; NULL: no such field. */
typedef const char *(*sd_field_fn)(void *context, const char *name, size_t name_len, size_t *len);

/* Appends the filled template. A missing field is named, along with `fields`, the ones there are. */
int sd_template_fill(const char *template, sd_field_fn field, void *context, const char *fields, sd_buf *out,
                     sd_error *err);
int sd_template_fields(const char *template, sd_error *err); /* how many {field}s; negative: malformed */

#endif
