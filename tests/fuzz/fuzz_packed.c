/* SPDX-License-Identifier: MIT
 *
 * The input is the header of a file of packed weights, for a model that is always the same. Its data are as long as
 * those of each weight type are, so that what lies behind the first checks is reached. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/utf8.h"
#include "src/model/packed_file.h"
#include "tests/fuzz/fuzz.h"

static const char model[] =
    "{\"model_type\": \"opt\", \"num_hidden_layers\": 2, \"hidden_size\": 8, \"num_attention_heads\": 2, "
    "\"ffn_dim\": 12, \"vocab_size\": 20, \"max_position_embeddings\": 6, \"word_embed_proj_dim\": 4, "
    "\"tie_word_embeddings\": false}";

static size_t data_size(const sd_config *config, sd_weight_type weights)
{
    sd_held *held;
    size_t n, size = 0;
    sd_fuzz_require(sd_held_list(&held, &n, config, NULL) == SD_OK);
    for (size_t i = 0; i < n; i++) {
        size += sd_held_bytes(&held[i], weights, weights);
    }
    sd_free(held);
    return size;
}

static void check(const sd_packed *packed, const sd_config *config, size_t size)
{
    sd_fuzz_require(config->vocab > 0 && config->vocab <= 1 << 24);
    sd_fuzz_require(packed->weights != SD_WEIGHTS_AUTO && packed->head != SD_WEIGHTS_AUTO);
    sd_fuzz_require(packed->n > 0 && packed->bytes == size);
    for (size_t i = 0; i < packed->n; i++) {
        const sd_packed_entry *e = &packed->entries[i];
        sd_fuzz_require(e->at <= size && e->bytes <= size - e->at);
        sd_fuzz_require(e->bytes == sd_held_bytes(&e->held, packed->weights, packed->head));
    }
}

static void run(const uint8_t *data, size_t size, sd_weight_type weights)
{
    sd_config config;
    sd_error err = {0};
    sd_fuzz_require(sd_config_parse(&config, model, sizeof model - 1, "model", NULL) == SD_OK);
    const size_t n_bytes = data_size(&config, weights);
    sd_tensor_list list = {0};
    sd_packed packed = {0};
    json_t *header;
    int rc = sd_safetensors_parse_header(&list, &header, (const char *)data, size, n_bytes, "input", &err);
    rc = rc == SD_OK ? sd_tensor_list_sort(&list, &err) : rc;
    rc = rc == SD_OK ? sd_packed_parse(&packed, &config, &list, header, "input", &err) : rc;
    sd_fuzz_require(rc == err.code);
    sd_fuzz_require(rc == SD_OK || err.message[0] != '\0');
    sd_fuzz_require(sd_utf8_valid(err.message, strlen(err.message)));
    if (rc == SD_OK) {
        check(&packed, &config, n_bytes);
    }
    sd_packed_clear(&packed);
    sd_tensor_list_free(&list);
    json_decref(header);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int weights = SD_WEIGHTS_F32; weights <= SD_WEIGHTS_Q4; weights++) {
        run(data, size, (sd_weight_type)weights);
    }
    return 0;
}
