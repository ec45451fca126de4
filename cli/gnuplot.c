/* SPDX-License-Identifier: MIT
 *
 * gnuplot reads data and commands from its standard input and writes the picture to its standard output, so that no
 * file name has to be quoted for it. */
#include "cli/gnuplot.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/file.h"

typedef struct sd_drawing {
    const char *path;
    void (*write)(const void *context, FILE *to);
    const void *context;
} sd_drawing;

static int not_installed(sd_error *err)
{
    return sd_fail(err, SD_ERR_IO,
                   "--plot needs gnuplot, which is not installed (Debian: apt-get install gnuplot-nox)");
}

static int run_gnuplot(const sd_drawing *d, int picture, sd_error *err)
{
    int ends[2];
    if (pipe(ends) != 0) {
        return sd_fail_errno(err, "cannot start gnuplot");
    }
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[0], STDIN_FILENO);
        dup2(picture, STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execlp("gnuplot", "gnuplot", (char *)NULL);
        _exit(127);
    }
    close(ends[0]);
    FILE *to = child > 0 ? fdopen(ends[1], "w") : NULL;
    if (!to) {
        close(ends[1]);
        return sd_fail_errno(err, "cannot start gnuplot");
    }
    d->write(d->context, to);
    fclose(to);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
        return not_installed(err);
    }
    struct stat st;
    bool written = status == 0 && fstat(picture, &st) == 0 && st.st_size > 0;
    return written ? SD_OK : sd_fail(err, SD_ERR_IO, "gnuplot could not draw %s", d->path);
}

/* The picture goes beside the target; only a finished one gets its name. */
int sd_gnuplot(const char *path, void (*write)(const void *context, FILE *to), const void *context, sd_error *err)
{
    const sd_drawing drawing = {path, write, context};
    sd_atomic_file file;
    int rc = sd_atomic_open(&file, path, err);
    if (rc == SD_OK) {
        rc = run_gnuplot(&drawing, fileno(file.stream), err);
        if (rc == SD_OK) {
            rc = sd_atomic_commit(&file, err);
            if (rc == SD_OK) {
                fprintf(stderr, "the picture is in %s\n", path);
            }
            return rc;
        }
        sd_atomic_discard(&file);
    }
    return rc;
}

int sd_gnuplot_check(const char *path, sd_error *err)
{
    int rc = sd_check_output(path, err);
    if (rc != SD_OK) {
        return rc;
    }
    pid_t child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        execlp("gnuplot", "gnuplot", "--version", (char *)NULL);
        _exit(127);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0) {
        return sd_fail_errno(err, "cannot start gnuplot");
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 127 ? not_installed(err) : SD_OK;
}
