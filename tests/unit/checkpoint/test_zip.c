/* SPDX-License-Identifier: MIT */
#include "src/checkpoint/zip.h"
#include "tests/unit/checkpoint/builders.h"

/* Opens a copy of exactly n bytes and touches every member. */
static int run(const void *bytes, size_t n, sd_error *err)
{
    unsigned char *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    memcpy(copy, n ? bytes : "", n);
    sd_zip zip;
    *err = (sd_error){0};
    int rc = sd_zip_open(&zip, copy, n, err);
    volatile unsigned char sum = 0;
    for (size_t i = 0; i < zip.n; i++) {
        const sd_zip_member *m = &zip.members[i];
        assert_ptr_equal(sd_zip_find(&zip, m->name, m->name_len), m);
        for (size_t j = 0; j < m->size; j++) {
            sum = (unsigned char)(sum + m->data[j]);
        }
    }
    sd_zip_close(&zip);
    free(copy);
    return rc;
}

static void sample(zip_builder *zip, bool wide, bool end64)
{
    zip->wide = wide;
    zip_add(zip, "b", "second", 6, 0);
    zip_add(zip, "a", "first", 5, 61);
    zip_add(zip, "empty", "", 0, 5);
    zip_add(zip, "folder/", "", 0, 0);
    zip_finish(zip, end64);
}

static void finds_members_in_every_form(void **state)
{
    (void)state;
    for (int form = 0; form < 4; form++) {
        zip_builder builder = {0};
        sample(&builder, form & 1, form & 2);
        sd_zip zip;
        sd_error err = {0};
        sd_assert_ok(sd_zip_open(&zip, (unsigned char *)builder.bytes.data, builder.bytes.len, &err), &err);
        assert_int_equal(zip.n, 4);
        const sd_zip_member *m = sd_zip_find(&zip, "a", 1);
        assert_non_null(m);
        assert_int_equal(m->size, 5);
        assert_memory_equal(m->data, "first", 5);
        assert_int_equal(sd_zip_find(&zip, "empty", 5)->size, 0);
        assert_null(sd_zip_find(&zip, "ab", 2));
        assert_null(sd_zip_find(&zip, "", 0));
        assert_null(sd_zip_find(&zip, "zzz", 3));
        sd_zip_close(&zip);
        sd_assert_ok(run(builder.bytes.data, builder.bytes.len, &err), &err);
        zip_free(&builder);
    }
}

/* Every bound is met exactly: no name, no data, nothing between the last member and the directory. */
static void accepts_the_smallest_members(void **state)
{
    (void)state;
    sd_error err;
    for (int end64 = 0; end64 < 2; end64++) {
        zip_builder none = {0}, one = {.bare = true}, two = {.bare = true};
        zip_finish(&none, end64);
        sd_assert_ok(run(none.bytes.data, none.bytes.len, &err), &err);
        zip_add(&one, "", "", 0, 0);
        zip_finish(&one, end64);
        sd_assert_ok(run(one.bytes.data, one.bytes.len, &err), &err);
        zip_add(&two, "a", "x", 1, 0);
        zip_add(&two, "b", "y", 1, 0);
        zip_finish(&two, end64);
        sd_assert_ok(run(two.bytes.data, two.bytes.len, &err), &err);
        zip_free(&none);
        zip_free(&one);
        zip_free(&two);
    }
}

static void accepts_a_comment(void **state)
{
    (void)state;
    static const size_t lengths[] = {1, 21, 22, 300, 65535};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        zip_builder builder = {0};
        sample(&builder, false, true);
        patch_number(&builder.bytes, builder.bytes.len - 2, lengths[i], 2);
        for (size_t j = 0; j < lengths[i]; j++) {
            sd_buf_add(&builder.bytes, &"PK\5\6"[j % 4], 1); /* must not be taken for the end record */
        }
        sd_error err;
        sd_assert_ok(run(builder.bytes.data, builder.bytes.len, &err), &err);
        zip_free(&builder);
    }
}

static void compressed_members_are_told(void **state)
{
    (void)state;
    zip_builder builder = {0};
    zip_add(&builder, "a", "12345", 5, 0);
    patch_number(&builder.directory, builder.last_entry + 10, 8, 2);
    patch_number(&builder.directory, builder.last_entry + 24, 5000, 4);
    zip_finish(&builder, false);
    sd_zip zip;
    sd_error err = {0};
    sd_assert_ok(sd_zip_open(&zip, (unsigned char *)builder.bytes.data, builder.bytes.len, &err), &err);
    assert_false(zip.members[0].stored);
    assert_int_equal(zip.members[0].size, 5);
    sd_zip_close(&zip);
    zip_free(&builder);
}

/* ---- one wrong number each, in an archive that is otherwise right ---- */

enum place { LOCAL, ENTRY, END, END64, LOCATOR };

static const struct hostile {
    const char *what;
    enum place place;
    size_t offset; /* in that record */
    uint64_t value;
    size_t width;
    const char *part; /* of the message */
    int code;
} hostile[] = {
    {"end without its signature", END, 0, 0, 4, "no end of central directory", SD_ERR_FORMAT},
    {"comment that is not there", END, 20, 1, 2, "no end of central directory", SD_ERR_FORMAT},
    {"second disk", END, 4, 1, 2, "several disks", SD_ERR_UNSUPPORTED},
    {"directory on another disk", END, 6, 1, 2, "several disks", SD_ERR_UNSUPPORTED},
    {"some members on another disk", END, 8, 1, 2, "several disks", SD_ERR_UNSUPPORTED},
    {"locator to nowhere", LOCATOR, 8, 0, 8, "no ZIP64 end record", SD_ERR_FORMAT},
    {"locator to the file's end", LOCATOR, 8, 100000, 8, "no ZIP64 end record", SD_ERR_FORMAT},
    {"locator that wraps around", LOCATOR, 8, UINT64_MAX - 3, 8, "no ZIP64 end record", SD_ERR_FORMAT},
    {"ZIP64 end without its signature", END64, 0, 0, 4, "no ZIP64 end record", SD_ERR_FORMAT},
    {"locator to another disk", LOCATOR, 4, 1, 4, "several disks", SD_ERR_UNSUPPORTED},
    {"ZIP64 second disk", END64, 16, 1, 4, "several disks", SD_ERR_UNSUPPORTED},
    {"ZIP64 directory on another disk", END64, 20, 1, 4, "several disks", SD_ERR_UNSUPPORTED},
    {"ZIP64 fewer members on this disk", END64, 24, 1, 8, "several disks", SD_ERR_UNSUPPORTED},
    {"directory larger than the file", END64, 40, 100000, 8, "does not fit", SD_ERR_FORMAT},
    {"directory size that wraps around", END64, 40, UINT64_MAX - 8, 8, "does not fit", SD_ERR_FORMAT},
    {"directory size of zero", END64, 40, 0, 8, "do not fit into", SD_ERR_FORMAT},
    {"directory behind the end", END64, 48, 100000, 8, "does not fit", SD_ERR_FORMAT},
    {"directory at 2^64-1", END64, 48, UINT64_MAX, 8, "does not fit", SD_ERR_FORMAT},
    {"directory at 0", END64, 48, 0, 8, "no central directory entry", SD_ERR_FORMAT},
    {"entry without its signature", ENTRY, 0, 0, 4, "no central directory entry", SD_ERR_FORMAT},
    {"encrypted", ENTRY, 8, 1, 2, "encrypted", SD_ERR_UNSUPPORTED},
    {"masked headers", ENTRY, 8, 1 << 13, 2, "encrypted", SD_ERR_UNSUPPORTED},
    {"stored, but with another size outside", ENTRY, 24, 7, 4, "5 bytes inside and 7 outside", SD_ERR_FORMAT},
    {"size beyond the directory", ENTRY, 20, 100000, 4, "100000 bytes inside", SD_ERR_FORMAT},
    {"size that calls for a ZIP64 field", ENTRY, 24, UINT32_MAX, 4, "lacks the ZIP64 field", SD_ERR_FORMAT},
    {"offset that calls for a ZIP64 field", ENTRY, 42, UINT32_MAX, 4, "lacks the ZIP64 field", SD_ERR_FORMAT},
    {"name longer than the directory", ENTRY, 28, 60000, 2, "runs past", SD_ERR_FORMAT},
    {"extra field longer than the directory", ENTRY, 30, 60000, 2, "runs past", SD_ERR_FORMAT},
    {"comment longer than the directory", ENTRY, 32, 60000, 2, "runs past", SD_ERR_FORMAT},
    {"local header at the wrong place", ENTRY, 42, 1, 4, "no local header", SD_ERR_FORMAT},
    {"local header in the directory", ENTRY, 42, 200, 4, "no local header", SD_ERR_FORMAT},
    {"local header far outside", ENTRY, 42, 0x7FFFFFFF, 4, "no local header", SD_ERR_FORMAT},
    {"local header of another member", ENTRY, 42, 0, 4, "bears another name", SD_ERR_FORMAT},
    {"local header without its signature", LOCAL, 0, 0, 4, "no local header", SD_ERR_FORMAT},
    {"local name longer", LOCAL, 26, 60000, 2, "bears another name", SD_ERR_FORMAT},
    {"local name shorter", LOCAL, 26, 0, 2, "bears another name", SD_ERR_FORMAT},
    {"local name spelt differently", LOCAL, 30, 'x', 1, "bears another name", SD_ERR_FORMAT},
    {"local extra field into the directory", LOCAL, 28, 60000, 2, "run into the central directory", SD_ERR_FORMAT},
};
enum { N_HOSTILE = sizeof hostile / sizeof *hostile };

static void refuses_hostile_records(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_HOSTILE; i++) {
        const struct hostile *h = &hostile[i];
        zip_builder builder = {0};
        zip_add(&builder, "b", "one", 3, 0);
        zip_add(&builder, "a", "other", 5, 0);
        size_t directory = zip_finish(&builder, true), n = builder.bytes.len;
        const size_t at[] = {[LOCAL] = builder.last_local,
                             [ENTRY] = directory + builder.last_entry,
                             [END] = n - ZIP_END,
                             [END64] = n - ZIP_END - ZIP_LOCATOR - ZIP_END64,
                             [LOCATOR] = n - ZIP_END - ZIP_LOCATOR};
        sd_error err;
        sd_assert_ok(run(builder.bytes.data, n, &err), &err);
        patch_number(&builder.bytes, at[h->place] + h->offset, h->value, h->width);
        int rc = run(builder.bytes.data, n, &err);
        if (rc != h->code || !strstr(err.message, h->part)) {
            fail_msg("%s: returned %d with \"%s\"; expected %d with \"%s\"", h->what, rc, err.message, h->code,
                     h->part);
        }
        zip_free(&builder);
    }
}

static void refuses_damaged_zip64_fields(void **state)
{
    (void)state;
    static const struct {
        size_t offset, width;
        uint64_t value;
        const char *part;
    } damage[] = {
        {2, 2, 60000, "lacks the ZIP64 field"},      /* the foreign field runs past the extra field */
        {7, 2, 0x0002, "lacks the ZIP64 field"},     /* the ZIP64 field under another tag */
        {9, 2, 16, "lacks the ZIP64 field"},         /* too short for three numbers */
        {11, 8, 6, "5 bytes inside and 6 outside"},  /* sizes that differ */
        {27, 8, UINT64_MAX, "no local header"},      /* offset far outside */
        {27, 8, UINT64_MAX - 20, "no local header"}, /* wraps around with the header's size */
    };
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        zip_builder builder = {.wide = true};
        zip_add(&builder, "a", "first", 5, 0);
        size_t extra = zip_finish(&builder, true) + 46 + 1;
        patch_number(&builder.bytes, extra + damage[i].offset, damage[i].value, damage[i].width);
        sd_error err;
        sd_assert_fails(run(builder.bytes.data, builder.bytes.len, &err), SD_ERR_FORMAT, &err, damage[i].part);
        zip_free(&builder);
    }
    zip_builder builder = {.wide = true}; /* a size of 2^64-1 inside and outside */
    zip_add(&builder, "a", "first", 5, 0);
    size_t extra = zip_finish(&builder, true) + 46 + 1;
    patch_number(&builder.bytes, extra + 11, UINT64_MAX, 8);
    patch_number(&builder.bytes, extra + 19, UINT64_MAX, 8);
    sd_error err;
    sd_assert_fails(run(builder.bytes.data, builder.bytes.len, &err), SD_ERR_FORMAT, &err, "run into");
    zip_free(&builder);
}

static void refuses_members_that_share(void **state)
{
    (void)state;
    sd_error err;
    zip_builder twice = {0};
    zip_add(&twice, "a", "first", 5, 0);
    zip_add(&twice, "a", "other", 5, 0);
    zip_finish(&twice, false);
    sd_assert_fails(run(twice.bytes.data, twice.bytes.len, &err), SD_ERR_FORMAT, &err, "there twice");
    zip_free(&twice);

    zip_builder same = {0}; /* two entries for one local header */
    zip_add(&same, "a", "first", 5, 0);
    sd_buf entry = {0};
    sd_buf_add(&entry, same.directory.data, same.directory.len);
    sd_buf_add(&same.directory, entry.data, entry.len);
    same.n++;
    zip_finish(&same, false);
    sd_assert_fails(run(same.bytes.data, same.bytes.len, &err), SD_ERR_FORMAT, &err, "overlap");
    sd_buf_free(&entry);
    zip_free(&same);

    zip_builder nested = {0}; /* the first member is said to reach over the second */
    zip_add(&nested, "a", "first", 5, 0);
    size_t first = nested.last_entry;
    zip_add(&nested, "b", "second", 6, 0);
    patch_number(&nested.directory, first + 20, 60, 4);
    patch_number(&nested.directory, first + 24, 60, 4);
    zip_finish(&nested, false);
    sd_assert_fails(run(nested.bytes.data, nested.bytes.len, &err), SD_ERR_FORMAT, &err, "\"a\" and \"b\" overlap");
    zip_free(&nested);
}

static void refuses_counts_that_no_directory_can_hold(void **state)
{
    (void)state;
    static const uint64_t counts[] = {2, 1000, UINT32_MAX, UINT64_MAX / 46, UINT64_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        zip_builder builder = {0};
        zip_add(&builder, "a", "first", 5, 0);
        zip_finish(&builder, true);
        size_t end64 = builder.bytes.len - ZIP_END - ZIP_LOCATOR - ZIP_END64;
        patch_number(&builder.bytes, end64 + 24, counts[i], 8);
        patch_number(&builder.bytes, end64 + 32, counts[i], 8);
        sd_error err;
        sd_assert_fails(run(builder.bytes.data, builder.bytes.len, &err), SD_ERR_FORMAT, &err, "do not fit into");
        zip_free(&builder);
    }
}

static void refuses_what_is_no_zip(void **state)
{
    (void)state;
    sd_error err;
    sd_assert_fails(run("", 0, &err), SD_ERR_FORMAT, &err, "no end of central directory");
    char zeros[100] = {0};
    sd_assert_fails(run(zeros, sizeof zeros, &err), SD_ERR_FORMAT, &err, "no end of central directory");
    char locator[ZIP_LOCATOR + ZIP_END] = "PK\6\7";
    memcpy(locator + ZIP_LOCATOR, "PK\5\6", 4);
    sd_assert_fails(run(locator, sizeof locator, &err), SD_ERR_FORMAT, &err, "no ZIP64 end record");
    sd_assert_ok(run("PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22, &err), &err); /* an empty archive is one */
}

int main(void)
{
    _Static_assert(N_HOSTILE >= 30, "the list of hostile records only grows");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_members_in_every_form),
        cmocka_unit_test(accepts_the_smallest_members),
        cmocka_unit_test(accepts_a_comment),
        cmocka_unit_test(compressed_members_are_told),
        cmocka_unit_test(refuses_hostile_records),
        cmocka_unit_test(refuses_damaged_zip64_fields),
        cmocka_unit_test(refuses_members_that_share),
        cmocka_unit_test(refuses_counts_that_no_directory_can_hold),
        cmocka_unit_test(refuses_what_is_no_zip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
