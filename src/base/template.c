/* SPDX-License-Identifier: MIT */
#include "src/base/template.h"

#include <string.h>

/* Walks the template: literal text to `out`, fields through `field`. With field NULL it only counts. */
static int walk(const char *template, sd_field_fn field, void *context, const char *fields, sd_buf *out, sd_error *err)
{
    int count = 0;
    for (const char *s = template; *s;) {
        size_t plain = strcspn(s, "{}");
        if (out) {
            sd_buf_add(out, s, plain);
        }
        s += plain;
        if (*s && s[1] == *s) {
            if (out) {
                sd_buf_add(out, s, 1);
            }
            s += 2;
            continue;
        }
        const char *end = *s == '{' ? strchr(s, '}') : NULL;
        if (*s && (!end || end == s + 1)) {
            const char *fault = *s == '}' ? "a } without {" : end ? "an empty field" : "a { without }";
            return sd_fail(err, SD_ERR_ARG, "template \"%s\": %s at byte %zu; fields are {name}, braces are {{ and }}",
                           template, fault, (size_t)(s - template));
        }
        if (!*s) {
            break;
        }
        count++;
        size_t len = 0, name_len = (size_t)(end - s - 1);
        const char *value = field ? field(context, s + 1, name_len, &len) : "";
        if (!value) {
            return sd_fail(err, SD_ERR_ARG, "the template asks for field \"%.*s\"; there is %s%s", (int)name_len, s + 1,
                           fields[0] ? "only " : "none", fields);
        }
        if (out) {
            sd_buf_add(out, value, len);
        }
        s = end + 1;
    }
    return count;
}

int sd_template_fill(const char *template, sd_field_fn field, void *context, const char *fields, sd_buf *out,
                     sd_error *err)
{
    int count = walk(template, field, context, fields, out, err);
    if (count >= 0 && out->failed) {
        return sd_fail_memory(err, out->cap, "a prompt");
    }
    return count < 0 ? count : SD_OK;
}

int sd_template_fields(const char *template, sd_error *err) { return walk(template, NULL, NULL, "", NULL, err); }
