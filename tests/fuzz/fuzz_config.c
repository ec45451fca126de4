/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "src/base/utf8.h"
#include "src/model/model.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sd_config config;
    sd_error err = {0};
    int rc = sd_config_parse(&config, (const char *)data, size, "input", &err);
    sd_fuzz_require(rc == err.code);
    sd_fuzz_require(rc == SD_OK || err.message[0] != '\0');
    sd_fuzz_require(sd_utf8_valid(err.message, strlen(err.message)));
    if (rc == SD_OK) {
        sd_fuzz_require(config.n_layers > 0 && config.hidden > 0 && config.n_heads > 0 && config.vocab > 0);
        sd_fuzz_require(config.head_dim > 0 && config.head_dim * config.n_heads == config.hidden);
        sd_fuzz_require(config.embed > 0 && config.ffn > 0 && config.max_positions > 0);
    }
    return 0;
}
