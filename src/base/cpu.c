/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "src/base/cpu.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const char *const level_names[SD_CPU_LEVELS] = {"ref", "avx2", "avx512", "avx512vnni", "avx512bf16"};

const char *sd_cpu_level_name(sd_cpu_level_id level) { return level_names[level]; }

#if defined(__x86_64__)
static unsigned long long read_xcr0(void)
{
    unsigned lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return ((unsigned long long)hi << 32) | lo;
}

sd_cpu_level_id sd_cpu_detect(void)
{
    enum { OSXSAVE = 1 << 27, FMA = 1 << 12, F16C = 1 << 29, AVX = 1 << 28 }; /* leaf 1, ecx */
    enum { AVX2 = 1 << 5, F = 1 << 16, DQ = 1 << 17, BW = 1 << 30 };          /* leaf 7, ebx; VL is bit 31 */
    enum { VNNI = 1 << 11 /* leaf 7, ecx */, BF16 = 1 << 5 /* leaf 7.1, eax */ };
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) {
        return SD_CPU_REF;
    }
    const unsigned basic = OSXSAVE | FMA | F16C | AVX;
    if ((c & basic) != basic || (read_xcr0() & 0x6u) != 0x6u || !__get_cpuid_count(7, 0, &a, &b, &c, &d) ||
        (b & AVX2) == 0) {
        return SD_CPU_REF;
    }
    const unsigned wide = F | DQ | BW | 1u << 31;
    if ((b & wide) != wide || (read_xcr0() & 0xE6u) != 0xE6u) {
        return SD_CPU_AVX2;
    }
    if ((c & VNNI) == 0) {
        return SD_CPU_AVX512;
    }
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & BF16) ? SD_CPU_AVX512BF16 : SD_CPU_AVX512VNNI;
}
#else
sd_cpu_level_id sd_cpu_detect(void) { return SD_CPU_REF; }
#endif

int sd_cpu_select(sd_cpu_level_id *level, sd_error *err)
{
    sd_cpu_level_id best = sd_cpu_detect();
    const char *wanted = getenv("SKIPDECODE_CPU");
    if (!wanted || !wanted[0]) {
        *level = best;
        return SD_OK;
    }
    for (int i = 0; i < SD_CPU_LEVELS; i++) {
        if (strcmp(wanted, level_names[i]) == 0) {
            if (i > (int)best) {
                return sd_fail(err, SD_ERR_UNSUPPORTED,
                               "SKIPDECODE_CPU=%s: this machine supports at most %s; unset it or ask for less", wanted,
                               level_names[best]);
            }
            *level = (sd_cpu_level_id)i;
            return SD_OK;
        }
    }
    return sd_fail(err, SD_ERR_ARG, "SKIPDECODE_CPU=%s: not a level; expected " SD_CPU_LEVEL_NAMES, wanted);
}

/* ---- threads ---- */

static bool read_line(const char *path, char *line, int size)
{
    FILE *f = fopen(path, "re");
    if (!f) {
        return false;
    }
    bool ok = fgets(line, size, f) != NULL;
    fclose(f);
    return ok;
}

/* True if `cpu` is the first hardware thread of its core among those of `mask`. */
static bool leads_its_core(int cpu, const cpu_set_t *mask)
{
    char path[128], line[256];
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    if (!read_line(path, line, sizeof line)) {
        return true;
    }
    for (char *s = line; *s;) { /* "0,8" or "0-1" */
        char *end;
        long first = strtol(s, &end, 10), last = first;
        if (end == s) {
            break;
        }
        if (*end == '-') {
            last = strtol(end + 1, &end, 10);
        }
        for (long c = first; c <= last && c < cpu; c++) {
            if (c >= 0 && c < CPU_SETSIZE && CPU_ISSET((size_t)c, mask)) {
                return false;
            }
        }
        s = *end == ',' ? end + 1 : end + strlen(end);
    }
    return true;
}

/* CPUs of quota of one cgroup v2 directory ("max 100000" or "150000 100000"); 0 = no limit. */
static double quota_v2(const char *dir)
{
    char path[4352], line[128];
    double quota, period;
    (void)snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", dir);
    if (read_line(path, line, sizeof line) && sscanf(line, "%lf %lf", &quota, &period) == 2 && period > 0) {
        return quota / period;
    }
    return 0;
}

/* The tightest quota from the process's own group up to the root; 0 = none. */
static double cgroup_quota(void)
{
    double tightest = 0;
    char dir[4096] = "", line[4096];
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "0::", 3) == 0) {
            line[strcspn(line, "\n")] = '\0';
            (void)snprintf(dir, sizeof dir, "%.4000s", line + 3);
        }
    }
    if (f) {
        fclose(f);
    }
    for (;;) {
        double q = quota_v2(dir);
        if (q > 0 && (tightest == 0 || q < tightest)) {
            tightest = q;
        }
        char *slash = strrchr(dir, '/');
        if (!slash) {
            break;
        }
        *slash = '\0';
    }
    char quota[64], period[64]; /* cgroup v1 */
    if (read_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota, sizeof quota) &&
        read_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us", period, sizeof period) && atof(quota) > 0 &&
        atof(period) > 0) {
        double q = atof(quota) / atof(period);
        tightest = tightest == 0 || q < tightest ? q : tightest;
    }
    return tightest;
}

int sd_cpu_default_threads(void)
{
    cpu_set_t mask;
    CPU_ZERO(&mask);
    int threads = 0;
    if (sched_getaffinity(0, sizeof mask, &mask) == 0) {
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
            threads += CPU_ISSET((size_t)cpu, &mask) && leads_its_core(cpu, &mask);
        }
    } else { /* more CPUs than the mask has bits */
        threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    }
    double quota = cgroup_quota();
    if (quota > 0 && threads > (int)quota) {
        threads = (int)quota;
    }
    return threads < 1 ? 1 : threads;
}
