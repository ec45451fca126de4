/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "src/base/utf8.h"
#include "src/checkpoint/pickle.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sd_state_dict dict;
    sd_error err = {0};
    int rc = sd_pickle_read(&dict, data, size, &err);
    sd_fuzz_require(rc == err.code);
    sd_fuzz_require(rc == SD_OK || (err.message[0] != '\0' && dict.n == 0));
    sd_fuzz_require(sd_utf8_valid(err.message, strlen(err.message)));
    for (size_t i = 0; i < dict.n; i++) {
        const sd_pickle_tensor *t = &dict.tensors[i];
        sd_fuzz_require((const uint8_t *)t->name >= data && t->name_len <= size);
        sd_fuzz_require((const uint8_t *)t->key >= data && t->key_len <= size);
        sd_fuzz_require(sd_utf8_valid(t->name, t->name_len));
        sd_fuzz_require(t->storage_elements >= 0 && t->offset >= 0 && t->rank >= 0 && t->rank <= SD_MAX_RANK);
        for (int d = 0; d < t->rank; d++) {
            sd_fuzz_require(t->shape[d] >= 0 && t->stride[d] >= 0);
        }
    }
    sd_state_dict_free(&dict);
    return 0;
}
