/* SPDX-License-Identifier: MIT
 *
 * The input is only the header: its length is put in front and 64 bytes of data behind, so that the fuzzer need not
 * keep three numbers in step to get past the first checks. */
#include "tests/fuzz/fuzz_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { LENGTH = 8, DATA = 64 };
    uint8_t *file = calloc(LENGTH + size + DATA, 1);
    if (!file) {
        return 0;
    }
    uint64_t length = size;
    memcpy(file, &length, LENGTH);
    if (size > 0) {
        memcpy(file + LENGTH, data, size);
    }
    int rc = fuzz_reader(sd_safetensors_read, file, LENGTH + size + DATA);
    free(file);
    return rc;
}
