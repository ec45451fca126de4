/* SPDX-License-Identifier: MIT
 *
 * The central directory is the one source of truth. A local header is read only to find where the member's bytes begin,
 * and must bear the same name. */
#include "src/checkpoint/zip.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/checkpoint/tensor_list.h"

enum {
    END_SIZE = 22,          /* end of central directory, without its comment */
    END_MAX_COMMENT = 65535,
    LOCATOR_SIZE = 20,      /* ZIP64: where the ZIP64 end is; stands right before the end */
    END64_SIZE = 56,
    ENTRY_SIZE = 46,        /* central directory entry, without name, extra field and comment */
    LOCAL_SIZE = 30,        /* local header, without name and extra field */
    EXTRA_ZIP64 = 0x0001,
    METHOD_STORED = 0,
    FLAG_ENCRYPTED = 1 << 0,
    FLAG_PATCHED = 1 << 5,
    FLAG_MASKED = 1 << 13
};

static const uint32_t END_SIGN = 0x06054B50, LOCATOR_SIGN = 0x07064B50, END64_SIGN = 0x06064B50,
                      ENTRY_SIGN = 0x02014B50, LOCAL_SIGN = 0x04034B50;

static uint16_t get16(const unsigned char *p) { return (uint16_t)(p[0] | p[1] << 8); }
static uint32_t get32(const unsigned char *p) { return (uint32_t)get16(p) | (uint32_t)get16(p + 2) << 16; }
static uint64_t get64(const unsigned char *p) { return get32(p) | (uint64_t)get32(p + 4) << 32; }

typedef struct archive {
    const unsigned char *bytes;
    size_t size;
    uint64_t directory, directory_size, n_entries; /* the central directory's place in bytes, and its count */
    size_t end;                                    /* the directory must lie before this */
} archive;

/* The end record has no fixed place: a comment of up to 64 KiB may follow it. Its length must reach the file's end. */
static bool find_end(const unsigned char *bytes, size_t size, size_t *at)
{
    if (size < END_SIZE) {
        return false;
    }
    size_t last = size - END_SIZE, lowest = last > END_MAX_COMMENT ? last - END_MAX_COMMENT : 0;
    for (size_t i = last + 1; i-- > lowest;) {
        if (get32(bytes + i) == END_SIGN && get16(bytes + i + 20) == size - i - END_SIZE) {
            *at = i;
            return true;
        }
    }
    return false;
}

/* Replaces the numbers of the end record by the 64-bit ones, if the archive has them. */
static int read_end64(archive *a, size_t end_at, sd_error *err)
{
    if (end_at < LOCATOR_SIZE || get32(a->bytes + end_at - LOCATOR_SIZE) != LOCATOR_SIGN) {
        return SD_OK;
    }
    const unsigned char *locator = a->bytes + end_at - LOCATOR_SIZE;
    size_t limit = end_at - LOCATOR_SIZE;
    uint64_t at = get64(locator + 8);
    if (limit < END64_SIZE || at > limit - END64_SIZE || get32(a->bytes + at) != END64_SIGN) {
        return sd_fail(err, SD_ERR_FORMAT, "ZIP: the ZIP64 locator points to byte %llu, where no ZIP64 end record is",
                       (unsigned long long)at);
    }
    const unsigned char *end = a->bytes + at;
    if (get32(locator + 4) != 0 || get32(end + 16) != 0 || get32(end + 20) != 0 || get64(end + 24) != get64(end + 32)) {
        return sd_fail(err, SD_ERR_UNSUPPORTED, "ZIP: the archive is split over several disks");
    }
    a->n_entries = get64(end + 32);
    a->directory_size = get64(end + 40);
    a->directory = get64(end + 48);
    a->end = (size_t)at;
    return SD_OK;
}

static int read_end(archive *a, sd_error *err)
{
    size_t at;
    if (!find_end(a->bytes, a->size, &at)) {
        return sd_fail(err, SD_ERR_FORMAT, "ZIP: no end of central directory: the file is truncated, fetch it again");
    }
    const unsigned char *end = a->bytes + at;
    if ((get16(end + 4) != 0 && get16(end + 4) != UINT16_MAX) ||
        (get16(end + 6) != 0 && get16(end + 6) != UINT16_MAX) || get16(end + 8) != get16(end + 10)) {
        return sd_fail(err, SD_ERR_UNSUPPORTED, "ZIP: the archive is split over several disks");
    }
    a->n_entries = get16(end + 10);
    a->directory_size = get32(end + 12);
    a->directory = get32(end + 16);
    a->end = at;
    int rc = read_end64(a, at, err);
    if (rc != SD_OK) {
        return rc;
    }
    if (a->directory > a->end || a->directory_size > a->end - a->directory) {
        return sd_fail(err, SD_ERR_FORMAT,
                       "ZIP: a central directory of %llu bytes at byte %llu does not fit before byte %zu",
                       (unsigned long long)a->directory_size, (unsigned long long)a->directory, a->end);
    }
    if (a->n_entries > a->directory_size / ENTRY_SIZE) {
        return sd_fail(err, SD_ERR_FORMAT, "ZIP: %llu members do not fit into a central directory of %llu bytes",
                       (unsigned long long)a->n_entries, (unsigned long long)a->directory_size);
    }
    return SD_OK;
}

typedef struct entry {
    uint64_t packed, size, local; /* packed: bytes as stored; local: where the local header is */
} entry;

/* ZIP64's extra field holds, in this order, only those of the three numbers that the entry could not. */
static bool widen(entry *e, const unsigned char *extra, size_t len)
{
    uint64_t *wanted[3];
    size_t n = 0;
    if (e->size == UINT32_MAX) {
        wanted[n++] = &e->size;
    }
    if (e->packed == UINT32_MAX) {
        wanted[n++] = &e->packed;
    }
    if (e->local == UINT32_MAX) {
        wanted[n++] = &e->local;
    }
    if (n == 0) {
        return true;
    }
    while (len >= 4) {
        size_t field = get16(extra + 2);
        if (field > len - 4) {
            return false;
        }
        if (get16(extra) == EXTRA_ZIP64) {
            for (size_t i = 0; i < n; i++) {
                if (8 * (i + 1) > field) {
                    return false;
                }
                *wanted[i] = get64(extra + 4 + 8 * i);
            }
            return true;
        }
        extra += 4 + field;
        len -= 4 + field;
    }
    return false;
}

/* The member's bytes begin behind its local header, whose extra field (torch's alignment padding) has its own length.
 */
static int locate(const archive *a, const entry *e, sd_zip_member *m, sd_error *err)
{
    if (a->directory < LOCAL_SIZE || e->local > a->directory - LOCAL_SIZE || get32(a->bytes + e->local) != LOCAL_SIGN) {
        return sd_fail(err, SD_ERR_FORMAT, "no local header at byte %llu", (unsigned long long)e->local);
    }
    const unsigned char *local = a->bytes + e->local;
    size_t name_len = get16(local + 26), begin = (size_t)e->local + LOCAL_SIZE;
    if (name_len != m->name_len || name_len > a->directory - begin ||
        memcmp(local + LOCAL_SIZE, m->name, name_len) != 0) {
        return sd_fail(err, SD_ERR_FORMAT, "the local header at byte %llu bears another name",
                       (unsigned long long)e->local);
    }
    begin += name_len + get16(local + 28);
    if (begin > a->directory || e->packed > a->directory - begin) {
        return sd_fail(err, SD_ERR_FORMAT,
                       "its %llu bytes run into the central directory: the file is truncated or damaged",
                       (unsigned long long)e->packed);
    }
    m->data = a->bytes + begin;
    m->size = (size_t)e->packed;
    m->begin = (size_t)e->local;
    m->end = begin + m->size;
    return SD_OK;
}

/* Reads the entry at byte *at of the file and moves *at behind it. */
static int read_entry(const archive *a, uint64_t *at, sd_zip_member *m, sd_error *err)
{
    uint64_t left = a->directory + a->directory_size - *at;
    const unsigned char *p = a->bytes + *at;
    if (left < ENTRY_SIZE || get32(p) != ENTRY_SIGN) {
        return sd_fail(err, SD_ERR_FORMAT, "ZIP: no central directory entry at byte %llu", (unsigned long long)*at);
    }
    size_t name_len = get16(p + 28), extra_len = get16(p + 30), comment_len = get16(p + 32);
    if (name_len + extra_len + comment_len > left - ENTRY_SIZE) {
        return sd_fail(err, SD_ERR_FORMAT, "ZIP: the central directory entry at byte %llu runs past the directory",
                       (unsigned long long)*at);
    }
    *at += ENTRY_SIZE + name_len + extra_len + comment_len;
    *m = (sd_zip_member){.name = (const char *)p + ENTRY_SIZE, .name_len = name_len};
    unsigned flags = get16(p + 8);
    m->stored = get16(p + 10) == METHOD_STORED;
    entry e = {.packed = get32(p + 20), .size = get32(p + 24), .local = get32(p + 42)};
    int rc;
    if (flags & (FLAG_ENCRYPTED | FLAG_PATCHED | FLAG_MASKED)) {
        rc = sd_fail(err, SD_ERR_UNSUPPORTED, "is encrypted or patched (flags 0x%04x)", flags);
    } else if (!widen(&e, p + ENTRY_SIZE + name_len, extra_len)) {
        rc = sd_fail(err, SD_ERR_FORMAT, "lacks the ZIP64 field that its sizes call for");
    } else if (m->stored && e.packed != e.size) {
        rc = sd_fail(err, SD_ERR_FORMAT, "is stored, but has %llu bytes inside and %llu outside of the archive",
                     (unsigned long long)e.packed, (unsigned long long)e.size);
    } else {
        rc = locate(a, &e, m, err);
    }
    return rc == SD_OK ? SD_OK : sd_fail_prefix(err, rc, "ZIP member \"%s\"", sd_show(m->name, name_len).text);
}

static int by_begin(const void *a, const void *b)
{
    size_t x = ((const sd_zip_member *)a)->begin, y = ((const sd_zip_member *)b)->begin;
    return (x > y) - (x < y);
}

static int compare_names(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order ? order : (a_len > b_len) - (a_len < b_len);
}

static int by_name(const void *a, const void *b)
{
    const sd_zip_member *x = a, *y = b;
    return compare_names(x->name, x->name_len, y->name, y->name_len);
}

/* Two members that share bytes, or a name, make a file that two readers can read in two ways. */
static int sort_members(sd_zip *zip, sd_error *err)
{
    if (zip->n == 0) {
        return SD_OK;
    }
    qsort(zip->members, zip->n, sizeof *zip->members, by_begin);
    for (size_t i = 1; i < zip->n; i++) {
        const sd_zip_member *before = &zip->members[i - 1], *m = &zip->members[i];
        if (before->end > m->begin) {
            return sd_fail(err, SD_ERR_FORMAT, "ZIP: members \"%s\" and \"%s\" overlap",
                           sd_show(before->name, before->name_len).text, sd_show(m->name, m->name_len).text);
        }
    }
    qsort(zip->members, zip->n, sizeof *zip->members, by_name);
    for (size_t i = 1; i < zip->n; i++) {
        const sd_zip_member *m = &zip->members[i];
        if (by_name(m - 1, m) == 0) {
            return sd_fail(err, SD_ERR_FORMAT, "ZIP: member \"%s\" is there twice", sd_show(m->name, m->name_len).text);
        }
    }
    return SD_OK;
}

int sd_zip_open(sd_zip *zip, const unsigned char *bytes, size_t size, sd_error *err)
{
    *zip = (sd_zip){0};
    archive a = {.bytes = bytes, .size = size};
    int rc = read_end(&a, err);
    if (rc != SD_OK) {
        return rc;
    }
    zip->members = sd_malloc((size_t)a.n_entries, sizeof *zip->members);
    if (!zip->members) {
        return sd_fail_memory(err, (size_t)a.n_entries * sizeof *zip->members, "the ZIP directory");
    }
    uint64_t at = a.directory;
    for (; zip->n < a.n_entries && rc == SD_OK; zip->n++) {
        rc = read_entry(&a, &at, &zip->members[zip->n], err);
    }
    if (rc == SD_OK) {
        rc = sort_members(zip, err);
    }
    if (rc != SD_OK) {
        sd_zip_close(zip);
    }
    return rc;
}

void sd_zip_close(sd_zip *zip)
{
    sd_free(zip->members);
    *zip = (sd_zip){0};
}

const sd_zip_member *sd_zip_find(const sd_zip *zip, const char *name, size_t len)
{
    size_t low = 0, high = zip->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const sd_zip_member *m = &zip->members[middle];
        int order = compare_names(name, len, m->name, m->name_len);
        if (order == 0) {
            return m;
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return NULL;
}
