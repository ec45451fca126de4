/* SPDX-License-Identifier: MIT
 *
 * The smallest use of the library: continue one prompt on a third of the layers.
 *
 *     cc minimal.c $(pkg-config --cflags --libs skipdecode) -o minimal
 *     ./minimal MODEL "text"
 *
 * The text is the prompt as it is: filling in a model's template (`skipdecode info MODEL` shows it) is the caller's
 * part.
 */
#include <skipdecode/skipdecode.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PROMPT = 512 };

static int generate(const sd_model *model, const sd_tokenizer *tok, const char *text, sd_error *err)
{
    int32_t ids[MAX_PROMPT];
    size_t n;
    if (sd_tokenizer_encode(tok, text, strlen(text), SD_ENCODE_BOS, ids, MAX_PROMPT, &n, err) != SD_OK) {
        return err->code;
    }
    sd_request request = {.prompt = ids, .n_prompt = (int)n, .max_tokens = 48};
    sd_sampling_default(&request.sampling); /* greedy */

    sd_model_info info;
    sd_model_get_info(model, &info);
    sd_generate_options options;
    sd_generate_options_default(&options);
    if (sd_schedule_preset(&options.schedule, info.n_layers, 3.0, err) != SD_OK) {
        return err->code;
    }

    sd_result result;
    sd_timing timing;
    if (sd_generate(model, tok, &request, 1, &options, &result, &timing, err) != SD_OK) {
        return err->code;
    }
    printf("%s\n", result.text);
    fprintf(stderr, "%d tokens, %lld of %d layer runs\n", result.n_ids, (long long)result.layers_run,
            result.steps * info.n_layers);
    sd_result_clear(&result);
    return SD_OK;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s MODEL TEXT\n", argv[0]);
        return 2;
    }
    sd_error err = {0};
    sd_model *model = NULL;
    sd_tokenizer *tok = NULL;
    int rc = sd_model_load(&model, argv[1], NULL, &err);
    if (rc == SD_OK) {
        rc = sd_tokenizer_load(&tok, argv[1], &err);
    }
    if (rc == SD_OK) {
        rc = generate(model, tok, argv[2], &err);
    }
    if (rc != SD_OK) {
        fprintf(stderr, "%s: %s\n", argv[0], err.message);
    }
    sd_tokenizer_free(tok);
    sd_model_free(model);
    return rc == SD_OK ? 0 : 1;
}
