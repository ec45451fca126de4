/* SPDX-License-Identifier: MIT
 *
 * One file of a tokenizer's directory is the input, after a first byte that says which; the others are good. */
#define _GNU_SOURCE
#include "src/base/utf8.h"
#include "tests/fuzz/fuzz_tokenizer.h"

static const char *const names[] = {
    "tokenizer.json",          "vocab.json",        "merges.txt", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "config.json"};
enum { N_NAMES = sizeof names / sizeof *names };

/* A tokenizer that was accepted must work on any text. */
static void use(const sd_tokenizer *tok)
{
    static const char text[] = "the  </s>\xFF\xC3\xA9<pad> aaaaa\n";
    enum { CAP = 256 };
    int32_t ids[CAP];
    char back[4 * CAP];
    for (unsigned flags = 0; flags < 4; flags++) {
        size_t n = 0, len = 0;
        sd_error err = {0};
        sd_fuzz_require(sd_tokenizer_encode(tok, text, sizeof text - 1, flags, ids, CAP, &n, &err) == SD_OK);
        for (size_t i = 0; i < n; i++) {
            sd_fuzz_require(ids[i] >= 0 && ids[i] < sd_tokenizer_size(tok));
        }
        int rc = sd_tokenizer_decode(tok, ids, n, back, sizeof back, &len, &err);
        sd_fuzz_require(rc == SD_OK || rc == SD_ERR_LIMIT);
        sd_fuzz_require(rc != SD_OK || sd_utf8_valid(back, len));
    }
    for (int32_t id = -1; id <= sd_tokenizer_size(tok) && id < 1000; id++) {
        size_t len = 0;
        sd_fuzz_require(sd_tokenizer_piece(tok, id, &len));
        (void)sd_tokenizer_is_special(tok, id);
    }
    sd_fuzz_require(!sd_tokenizer_adds_bos(tok) || sd_tokenizer_bos(tok) >= 0);
    sd_fuzz_require(sd_tokenizer_eos(tok) < sd_tokenizer_size(tok));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    const char *name = names[data[0] % N_NAMES];
    sd_buf vocab = {0};
    fuzz_add_vocab(&vocab);
    const fuzz_file good[] = {{"vocab.json", vocab.data, vocab.len},
                              {"merges.txt", FUZZ_MERGES, sizeof FUZZ_MERGES - 1},
                              {"tokenizer_config.json", FUZZ_CONFIG, sizeof FUZZ_CONFIG - 1}};
    fuzz_file files[4] = {{name, (const char *)data + 1, size - 1}};
    size_t n = 1;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (strcmp(good[i].name, name) != 0) {
            files[n++] = good[i];
        }
    }
    sd_tokenizer *tok;
    sd_error err = {0};
    int rc = fuzz_load(&tok, files, n, &err);
    sd_fuzz_require(rc == err.code);
    sd_fuzz_require(rc == SD_OK || (err.message[0] != '\0' && !tok));
    sd_fuzz_require(sd_utf8_valid(err.message, strlen(err.message)));
    if (rc == SD_OK) {
        use(tok);
        sd_tokenizer_free(tok);
    }
    sd_buf_free(&vocab);
    return 0;
}
