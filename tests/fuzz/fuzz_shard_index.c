/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "src/base/file.h"
#include "src/checkpoint/readers.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sd_shard_index index;
    sd_error err = {0};
    int rc = sd_shard_index_parse(&index, (const char *)data, size, "input", &err);
    sd_fuzz_require(rc == err.code);
    sd_fuzz_require(rc == SD_OK || err.message[0] != '\0');
    if (rc == SD_OK) {
        sd_fuzz_require(index.n_shards > 0 && index.n_shards <= json_object_size(index.weight_map));
        for (size_t i = 0; i < index.n_shards; i++) {
            sd_fuzz_require(sd_path_is_contained(index.shards[i]));
            sd_fuzz_require(i == 0 || strcmp(index.shards[i - 1], index.shards[i]) < 0);
        }
        sd_shard_index_clear(&index);
    }
    return 0;
}
