/* SPDX-License-Identifier: MIT */
#include "tests/fuzz/fuzz_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return fuzz_reader(sd_safetensors_read, data, size); }
