/* SPDX-License-Identifier: MIT
 *
 * Finding added tokens ("</s>", "<image>") in text, before it is cut into pieces: a trie of their bytes. */
#ifndef SD_TOKENIZER_ADDED_H
#define SD_TOKENIZER_ADDED_H

#include "src/tokenizer/map.h"

/* Start from {0}; release with sd_added_free. */
typedef struct sd_added {
    sd_map edges; /* node << 8 | byte -> node; the root is node 0 */
    int32_t *ids; /* [n_nodes] the token that ends at the node, -1 for none */
    uint32_t n_nodes, cap_nodes;
    bool begins[256]; /* bytes that some token begins with: most of a text is passed over by this alone */
} sd_added;

/* Adds a token's text, len > 0. False when memory is out. A text that is there already keeps its first id. */
bool sd_added_insert(sd_added *added, const char *text, size_t len, int32_t id);
void sd_added_free(sd_added *added);

/* The first token at or behind `from`, the longest of those that begin there: its id, and *start and *end; -1 if there
 * is none. Takes at most the length of the longest token for each byte. */
int32_t sd_added_find(const sd_added *added, const char *text, size_t len, size_t from, size_t *start, size_t *end);

#endif
