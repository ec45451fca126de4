/* SPDX-License-Identifier: MIT
 *
 * CSV after RFC 4180: quoted fields may hold commas, quotes and newlines. */
#ifndef SD_BASE_CSV_H
#define SD_BASE_CSV_H

#include "src/base/buf.h"
#include "src/base/error.h"

/* Start from {.data, .len, .line = 1}; release with sd_csv_clear. */
typedef struct sd_csv {
    const char *data; /* [len] borrowed */
    size_t len, at;
    long line, began; /* here, and where the record began */
    sd_buf text;      /* the fields of one record, one after the other */
    size_t *ends;     /* [cap] end of each in text */
    size_t n, cap;
} sd_csv;

/* Reads the next record: 1, or 0 at the end, or an error. */
int sd_csv_next(sd_csv *csv, sd_error *err);
const char *sd_csv_field(const sd_csv *csv, size_t i, size_t *len);
void sd_csv_clear(sd_csv *csv);

/* The table that a CSV with a header is: columns by name. Start from {.csv = {...}}; release with sd_table_clear. */
typedef struct sd_table {
    sd_csv csv;
    char **columns; /* [n] names from the header */
    size_t n;
    char names[256];   /* the names as a message shows them, as far as there is room */
    const char *twice; /* a column that was asked for and whose name is not unique */
} sd_table;

int sd_table_read_header(sd_table *table, sd_error *err);

/* The next record, which must have as many fields as the header: 1, 0 at the end, or an error that names the line. */
int sd_table_next(sd_table *table, sd_error *err);

/* A field of the record by its column's name: an sd_field_fn, whose context is the table. */
const char *sd_table_field(void *table, const char *name, size_t name_len, size_t *len);
void sd_table_clear(sd_table *table);

#endif
