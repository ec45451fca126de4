/* SPDX-License-Identifier: MIT
 *
 * A small tokenizer's files, for the targets of the tokenizer room: the 256 bytes, a few merges, "</s>". */
#ifndef SD_TESTS_FUZZ_FUZZ_TOKENIZER_H
#define SD_TESTS_FUZZ_FUZZ_TOKENIZER_H

#include <string.h>
#include <unistd.h>

#include "src/base/buf.h"
#include "src/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz.h"

typedef struct fuzz_file {
    const char *name, *text;
    size_t len;
} fuzz_file;

/* Byte b as GPT-2's vocabulary spells it: itself if printable in Latin-1, else the next character from U+0100 on. */
static inline void fuzz_add_byte(sd_buf *out, unsigned b, unsigned *n_hidden)
{
    bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    unsigned c = printable ? b : 0x100 + (*n_hidden)++;
    if (c == '"' || c == '\\') {
        sd_buf_add_str(out, "\\");
    }
    if (c < 0x80) {
        char ascii = (char)c;
        sd_buf_add(out, &ascii, 1);
    } else {
        char two[2] = {(char)(0xC0 | c >> 6), (char)(0x80 | (c & 0x3F))};
        sd_buf_add(out, two, 2);
    }
}

/* {"</s>": 0, bytes: 1 .. 256, "th": 257, ...} */
static inline void fuzz_add_vocab(sd_buf *out)
{
    static const char *const merged[] = {"th",          "the", "in",   "\xC4\xA0t",       "\xC4\xA0th",
                                         "\xC4\xA0the", "aa",  "aaaa", "\xC3\x83\xC2\xA9"};
    unsigned n_hidden = 0, id = 0;
    sd_buf_printf(out, "{\"</s>\":%u", id++);
    for (unsigned b = 0; b < 256; b++) {
        sd_buf_add_str(out, ",\"");
        fuzz_add_byte(out, b, &n_hidden);
        sd_buf_printf(out, "\":%u", id++);
    }
    for (size_t i = 0; i < sizeof merged / sizeof *merged; i++) {
        sd_buf_printf(out, ",\"%s\":%u", merged[i], id++);
    }
    sd_buf_add_str(out, "}");
}

static const char FUZZ_MERGES[] =
    "#version: 0.2\nt h\nth e\ni n\n\xC4\xA0 t\n\xC4\xA0t h\n\xC4\xA0th e\na a\naa aa\n\xC3\x83 \xC2\xA9\n";
static const char FUZZ_CONFIG[] =
    "{\"bos_token\":\"</s>\",\"eos_token\":\"</s>\",\"unk_token\":\"</s>\",\"add_bos_token\":true}";

static inline void fuzz_write(const char *dir, const fuzz_file *file)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", dir, file->name);
    FILE *f = fopen(path, "wb");
    sd_fuzz_require(f);
    sd_fuzz_require(fwrite(file->text, 1, file->len, f) == file->len);
    sd_fuzz_require(fclose(f) == 0);
}

/* Loads the files from a directory that is gone again when this returns. */
static inline int fuzz_load(sd_tokenizer **tok, const fuzz_file *files, size_t n, sd_error *err)
{
    char dir[] = "/tmp/skipdecode-fuzz-XXXXXX";
    sd_fuzz_require(mkdtemp(dir));
    for (size_t i = 0; i < n; i++) {
        fuzz_write(dir, &files[i]);
    }
    int rc = sd_tokenizer_load(tok, dir, err);
    for (size_t i = 0; i < n; i++) {
        char path[512];
        (void)snprintf(path, sizeof path, "%s/%s", dir, files[i].name);
        (void)unlink(path);
    }
    (void)rmdir(dir);
    return rc;
}

#endif
