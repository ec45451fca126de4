/* SPDX-License-Identifier: MIT
 *
 * A safetensors file opened for its header: the caller reads the data where it wants them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/file.h"
#include "src/checkpoint/safetensors.h"

static int open_and_size(sd_safetensors_file *file, sd_error *err)
{
    /* as sd_file_open: a pipe must not make it wait */
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    if (file->fd < 0 || fstat(file->fd, &st) != 0) {
        return sd_fail_errno(err, "cannot open");
    }
    if (!S_ISREG(st.st_mode) || st.st_size < 0) {
        return sd_fail(err, SD_ERR_IO, "not a regular file");
    }
    file->size = (size_t)st.st_size;
    return SD_OK;
}

static int read_header(sd_safetensors_file *file, sd_error *err)
{
    unsigned char start[SD_SAFETENSORS_LENGTH] = {0};
    const size_t some = file->size < sizeof start ? file->size : sizeof start;
    size_t header_size = 0;
    int rc = sd_read_at(file->fd, start, some, 0, err);
    if (rc == SD_OK) {
        rc = sd_safetensors_header_size(start, file->size, &header_size, err);
    }
    if (rc != SD_OK) {
        return rc;
    }
    file->data_at = SD_SAFETENSORS_LENGTH + header_size;
    char *text = sd_malloc(header_size, 1);
    if (!text) {
        return sd_fail_memory(err, header_size, "the header");
    }
    rc = sd_read_at(file->fd, text, header_size, SD_SAFETENSORS_LENGTH, err);
    if (rc == SD_OK) {
        rc = sd_safetensors_parse_header(&file->tensors, &file->header, text, header_size, file->size - file->data_at,
                                         file->path, err);
    }
    if (rc == SD_OK) {
        rc = sd_tensor_list_sort(&file->tensors, err);
    }
    sd_free(text);
    return rc;
}

int sd_safetensors_file_open(sd_safetensors_file *file, const char *path, sd_error *err)
{
    *file = (sd_safetensors_file){.fd = -1, .path = sd_strdup(path)};
    if (!file->path) {
        return sd_fail_memory(err, strlen(path), "a file name");
    }
    int rc = open_and_size(file, err);
    if (rc == SD_OK) {
        rc = read_header(file, err);
    }
    if (rc != SD_OK) {
        sd_safetensors_file_close(file);
        return sd_fail_prefix(err, rc, "%s", path);
    }
    return SD_OK;
}

void sd_safetensors_file_close(sd_safetensors_file *file)
{
    if (file->path && file->fd >= 0) {
        close(file->fd);
    }
    sd_tensor_list_free(&file->tensors);
    json_decref(file->header);
    sd_free(file->path);
    *file = (sd_safetensors_file){.fd = -1};
}

const char *sd_safetensors_metadata(const json_t *header, const char *key)
{
    return json_string_value(json_object_get(json_object_get(header, "__metadata__"), key));
}
