/* SPDX-License-Identifier: MIT
 *
 * Runs a fuzz target without libFuzzer, on the files of the folders it is given. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/file.h"
#include "tests/fuzz/fuzz.h"

static int replay(const char *path)
{
    sd_file file;
    sd_error err = {0};
    if (sd_file_open(&file, path, true, &err) != SD_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    uint8_t *copy = malloc(file.size ? file.size : 1); /* of exactly that size, for AddressSanitizer */
    if (!copy) {
        fprintf(stderr, "%s: out of memory\n", path);
        sd_file_close(&file);
        return 1;
    }
    memcpy(copy, file.data, file.size);
    int rc = LLVMFuzzerTestOneInput(copy, file.size);
    free(copy);
    sd_file_close(&file);
    return rc;
}

static int replay_folder(const char *folder, int *n)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, NULL, alphasort), failed = 0;
    if (count < 0) {
        perror(folder);
        return 1;
    }
    for (int i = 0; i < count; i++) {
        char path[4096];
        (void)snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') {
            failed |= replay(path);
            *n += 1;
        }
        free(entries[i]);
    }
    free(entries);
    return failed;
}

int main(int argc, char **argv)
{
    int n = 0, failed = 0;
    for (int i = 1; i < argc; i++) {
        failed |= replay_folder(argv[i], &n);
    }
    printf("%d inputs\n", n);
    return failed || n == 0; /* a corpus that got lost is a failure, too */
}
