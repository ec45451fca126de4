/* SPDX-License-Identifier: MIT
 *
 * Text through encode and back. The first byte of the input holds the flags. */
#define _GNU_SOURCE
#include "src/base/utf8.h"
#include "tests/fuzz/fuzz_tokenizer.h"

static sd_tokenizer *toy(void)
{
    static sd_tokenizer *tok;
    if (!tok) {
        sd_buf vocab = {0};
        sd_error err = {0};
        fuzz_add_vocab(&vocab);
        const fuzz_file files[] = {{"vocab.json", vocab.data, vocab.len},
                                   {"merges.txt", FUZZ_MERGES, sizeof FUZZ_MERGES - 1},
                                   {"tokenizer_config.json", FUZZ_CONFIG, sizeof FUZZ_CONFIG - 1}};
        int rc = fuzz_load(&tok, files, sizeof files / sizeof *files, &err);
        if (rc != SD_OK) {
            fprintf(stderr, "%s\n", err.message);
            abort();
        }
        sd_buf_free(&vocab);
    }
    return tok;
}

static void check_ids(const sd_tokenizer *tok, const int32_t *ids, size_t n, const char *text, size_t len,
                      unsigned flags)
{
    sd_error err = {0};
    for (size_t i = 0; i < n; i++) {
        sd_fuzz_require(ids[i] >= 0 && ids[i] < sd_tokenizer_size(tok));
    }
    sd_fuzz_require(!(flags & SD_ENCODE_BOS) || (n > 0 && ids[0] == sd_tokenizer_bos(tok)));
    size_t back = 0;
    char *decoded = malloc(3 * len + 1); /* each byte may become U+FFFD */
    sd_fuzz_require(decoded);
    sd_fuzz_require(sd_tokenizer_decode(tok, ids, n, decoded, 3 * len + 1, &back, &err) == SD_OK);
    sd_fuzz_require(sd_utf8_valid(decoded, back));
    if (!(flags & SD_ENCODE_SPECIALS)) { /* all bytes are text: they come back, mended */
        sd_buf want = {0};
        sd_utf8_sanitize(&want, text, len);
        sd_fuzz_require(back == want.len && (back == 0 || memcmp(decoded, want.data, back) == 0));
        sd_buf_free(&want);
    }
    free(decoded);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const sd_tokenizer *tok = toy();
    unsigned flags = size > 0 ? data[0] & (SD_ENCODE_BOS | SD_ENCODE_SPECIALS) : 0;
    const char *text = size > 0 ? (const char *)data + 1 : "";
    size_t len = size > 0 ? size - 1 : 0, n = 0, again = 0;
    sd_error err = {0};
    int rc = sd_tokenizer_encode(tok, text, len, flags, NULL, 0, &n, &err);
    sd_fuzz_require(rc == (n > 0 ? SD_ERR_LIMIT : SD_OK));
    sd_fuzz_require(n <= len + 1);
    int32_t *ids = malloc((n ? n : 1) * sizeof *ids);
    sd_fuzz_require(ids);
    sd_fuzz_require(sd_tokenizer_encode(tok, text, len, flags, ids, n, &again, &err) == SD_OK);
    sd_fuzz_require(again == n);
    check_ids(tok, ids, n, text, len, flags);
    free(ids);
    return 0;
}
