/* SPDX-License-Identifier: MIT
 *
 * Just enough ZIP (PKWARE's APPNOTE.TXT) for torch.save's files: one archive in memory, members that are stored rather
 * than compressed, 64-bit sizes and offsets. */
#ifndef SD_CHECKPOINT_ZIP_H
#define SD_CHECKPOINT_ZIP_H

#include <stdbool.h>
#include <stddef.h>

#include "src/base/error.h"

typedef struct sd_zip_member {
    const char *name; /* [name_len], not NUL-terminated */
    size_t name_len;
    bool stored;               /* false: compressed; data are as they lie in the archive and no use */
    const unsigned char *data; /* [size] */
    size_t size;
    size_t begin, end; /* local header to last byte, bytes from the start of the archive */
} sd_zip_member;

typedef struct sd_zip {
    sd_zip_member *members; /* [n] in ascending order of name, names distinct, bytes disjoint */
    size_t n;
} sd_zip;

/* Members borrow from bytes[0..size). Checksums are not compared: torch can leave them out. On failure *zip needs no
 * closing. */
int sd_zip_open(sd_zip *zip, const unsigned char *bytes, size_t size, sd_error *err);
void sd_zip_close(sd_zip *zip); /* tolerates {0} */
const sd_zip_member *sd_zip_find(const sd_zip *zip, const char *name, size_t len); /* NULL: none */

#endif
