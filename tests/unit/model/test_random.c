/* SPDX-License-Identifier: MIT
 *
 * Models of random weights: usable logits, the same for the same seed and no other, sizes as of a loaded model, and the
 * table of published shapes. */
#include <math.h>

#include "src/base/alloc.h"
#include "src/model/random.h"
#include "tests/unit/model/logits.h"

/* 100 outputs and 200 of the feed-forward block: panels that are not full. */
static const sd_config small = {
    .arch = "opt", .n_layers = 3, .hidden = 96, .n_heads = 4, .head_dim = 24, .ffn = 200, .vocab = 100, .embed = 96,
    .max_positions = 40, .position_offset = 2, .pre_norm = true, .final_norm = true, .bias = true, .norm_affine = true,
    .tied = true, .activation = SD_MLP_RELU, .norm_eps = 1e-5f, .bos_id = 2, .eos_id = 2, .pad_id = 1};

static sd_config projected(void)
{
    sd_config c = small;
    c.pre_norm = c.final_norm = c.tied = c.bias = false;
    c.embed = 44;
    c.activation = SD_MLP_GELU;
    return c;
}

static sd_model *make(const sd_config *config, const sd_model_options *options, uint64_t seed)
{
    sd_model *model;
    sd_error err = {0};
    sd_assert_ok(sd_model_random(&model, config, options, seed, &err), &err);
    return model;
}

static logits random_logits(const sd_config *config, sd_weight_type weights, int threads, uint64_t seed)
{
    sd_model *model = make(config, &(sd_model_options){.weights = weights, .threads = threads}, seed);
    const logits result = logits_of(model);
    sd_model_free(model);
    return result;
}

static void logits_are_finite_and_not_all_alike(void **state)
{
    (void)state;
    const sd_config configs[] = {small, projected(), sd_shape_find("e2e")->config};
    for (size_t c = 0; c < sizeof configs / sizeof *configs; c++) {
        for (int weights = SD_WEIGHTS_F32; weights <= SD_WEIGHTS_Q4; weights++) {
            const logits l = random_logits(&configs[c], (sd_weight_type)weights, 1, 5);
            float low = l.values[0], high = l.values[0];
            for (int i = 0; i < TINY_VOCAB; i++) {
                assert_true(isfinite(l.values[i]));
                low = fminf(low, l.values[i]);
                high = fmaxf(high, l.values[i]);
            }
            assert_true(high - low > 0.1f && high < 100 && low > -100);
        }
    }
}

static void the_seed_alone_decides(void **state)
{
    (void)state;
    const sd_config configs[] = {small, projected()};
    for (size_t c = 0; c < 2; c++) {
        const logits first = random_logits(&configs[c], SD_WEIGHTS_F32, 1, 7);
        const logits again = random_logits(&configs[c], SD_WEIGHTS_F32, 3, 7);
        const logits other = random_logits(&configs[c], SD_WEIGHTS_F32, 1, 8);
        assert_same_logits(&first, &again);
        assert_other_logits(&first, &other);
    }
}

/* The same values in every type, rounded: q8 is near f32. */
static void types_hold_the_same_weights(void **state)
{
    (void)state;
    const logits exact = random_logits(&small, SD_WEIGHTS_F32, 1, 9);
    const logits bf16 = random_logits(&small, SD_WEIGHTS_BF16, 1, 9), q8 = random_logits(&small, SD_WEIGHTS_Q8, 1, 9);
    assert_true(sd_max_difference(exact.values, bf16.values, TINY_VOCAB) < 0.2);
    assert_true(sd_max_difference(exact.values, q8.values, TINY_VOCAB) < 0.2);
}

static void types_are_what_was_asked_for(void **state)
{
    (void)state;
    const struct {
        sd_model_options options;
        sd_weight_type weights, head;
        sd_kv_type kv;
    } cases[] = {
        {{0}, SD_WEIGHTS_F32, SD_WEIGHTS_F32, SD_KV_F32},
        {{.weights = SD_WEIGHTS_BF16}, SD_WEIGHTS_BF16, SD_WEIGHTS_BF16, SD_KV_F16},
        {{.weights = SD_WEIGHTS_Q4}, SD_WEIGHTS_Q4, SD_WEIGHTS_Q8, SD_KV_F16},
        {{.weights = SD_WEIGHTS_Q8, .head = SD_WEIGHTS_F32, .kv = SD_KV_F32}, SD_WEIGHTS_Q8, SD_WEIGHTS_F32, SD_KV_F32},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sd_model *model = make(&small, &cases[i].options, 1);
        sd_model_info info;
        sd_model_get_info(model, &info);
        assert_int_equal(info.weights, cases[i].weights);
        assert_int_equal(info.head, cases[i].head);
        assert_int_equal(info.kv, cases[i].kv);
        sd_model_free(model);
    }
}

static size_t vector_bytes(const sd_config *c)
{
    const size_t hidden = (size_t)c->hidden, norms = (size_t)(2 * c->n_layers + c->final_norm);
    const size_t biases = c->bias ? (size_t)c->n_layers * (5 * hidden + (size_t)c->ffn) : 0;
    return 4 * (biases + 2 * norms * hidden + (size_t)(c->max_positions + c->position_offset) * hidden);
}

static void sizes_are_planned(void **state)
{
    (void)state;
    for (int weights = SD_WEIGHTS_F32; weights <= SD_WEIGHTS_Q4; weights++) {
        sd_model *model = make(&small, &(sd_model_options){.weights = (sd_weight_type)weights}, 1);
        sd_model_info info;
        sd_model_get_info(model, &info);
        assert_int_equal(info.weight_bytes,
                         (size_t)small.n_layers * info.layer_bytes + info.head_bytes + vector_bytes(&small));
        assert_int_equal(info.n_params, small.n_layers * (4 * 96 * 96 + 2 * 96 * 200) + 100 * 96 +
                                            (int64_t)vector_bytes(&small) / 4);
        sd_model_free(model);
    }
}

static void what_the_machine_cannot_hold_is_refused(void **state)
{
    (void)state;
    sd_config c = small;
    c.n_layers = 1 << 14;
    c.hidden = c.embed = 1 << 14;
    c.ffn = 1 << 16;
    sd_model *model;
    sd_error err = {0};
    sd_assert_fails(sd_model_random(&model, &c, NULL, 0, &err), SD_ERR_MEMORY, &err, "this machine has");
    assert_null(model);
    const sd_model_options options = {.threads = -1};
    sd_assert_fails(sd_model_random(&model, &small, &options, 0, &err), SD_ERR_ARG, &err, "threads -1");
}

static void an_allocation_that_fails_is_an_error(void **state)
{
    (void)state;
    const sd_config configs[] = {small, projected()};
    for (size_t c = 0; c < 2; c++) {
        int rc = SD_ERR_MEMORY;
        long n = 0;
        while (rc != SD_OK) {
            sd_model *model;
            sd_error err = {0};
            sd_alloc_fail_at(++n);
            rc = sd_model_random(&model, &configs[c], &(sd_model_options){.threads = 2}, 1, &err);
            sd_alloc_fail_at(0);
            if (rc == SD_OK) {
                sd_model_free(model);
            } else {
                sd_assert_fails(rc, SD_ERR_MEMORY, &err, "out of memory");
                assert_null(model);
            }
        }
        assert_true(n > 30);
    }
}

/* The parameters of the published checkpoints, a tied head counted once. */
static void shapes_are_the_published_ones(void **state)
{
    (void)state;
    const struct {
        const char *name;
        int64_t params;
    } known[] = {{"opt-125m", 125239296},   {"opt-350m", 331196416},   {"opt-1.3b", 1315758080},
                 {"opt-2.7b", 2651596800}, {"opt-6.7b", 6658473984}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const sd_config *c = &sd_shape_find(known[i].name)->config;
        const int64_t layer = 4 * (int64_t)c->hidden * c->hidden + 2 * (int64_t)c->hidden * c->ffn;
        const int64_t projections = c->embed != c->hidden ? 2 * (int64_t)c->embed * c->hidden : 0;
        const int64_t head = (int64_t)c->vocab * c->embed, vectors = (int64_t)vector_bytes(c) / 4;
        assert_int_equal(c->n_layers * layer + head + projections + vectors, known[i].params);
        assert_int_equal(c->head_dim * c->n_heads, c->hidden);
    }
    assert_null(sd_shape_find("opt-13"));
    assert_null(sd_shape_find(""));
}

static void the_embedded_models_shape_is_the_models(void **state)
{
    (void)state;
    sd_config c;
    sd_error err = {0};
    sd_assert_ok(sd_config_load(&c, "models/e2e-24l", &err), &err);
    const sd_config *shape = &sd_shape_find("e2e")->config;
    const int got[] = {shape->n_layers, shape->hidden, shape->n_heads, shape->head_dim, shape->ffn, shape->vocab,
                       shape->embed, shape->max_positions, shape->position_offset, shape->pre_norm, shape->final_norm,
                       shape->bias, shape->norm_affine, shape->tied, (int)shape->activation, shape->eos_id};
    const int want[] = {c.n_layers, c.hidden, c.n_heads, c.head_dim, c.ffn, c.vocab, c.embed, c.max_positions,
                        c.position_offset, c.pre_norm, c.final_norm, c.bias, c.norm_affine, c.tied, (int)c.activation,
                        c.eos_id};
    assert_memory_equal(got, want, sizeof want);
}

int main(void)
{
    sd_skip_unless_level();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_finite_and_not_all_alike),
        cmocka_unit_test(the_seed_alone_decides),
        cmocka_unit_test(types_hold_the_same_weights),
        cmocka_unit_test(types_are_what_was_asked_for),
        cmocka_unit_test(sizes_are_planned),
        cmocka_unit_test(what_the_machine_cannot_hold_is_refused),
        cmocka_unit_test(an_allocation_that_fails_is_an_error),
        cmocka_unit_test(shapes_are_the_published_ones),
        cmocka_unit_test(the_embedded_models_shape_is_the_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
