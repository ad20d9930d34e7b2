/* Preloaded, it puts the wall clock of a process by as many seconds as the file $FAULTS_CLOCK says; the monotonic
   clock goes on as it does when an administrator sets the time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(clock, now);
    const char *name = getenv("FAULTS_CLOCK");
    if (clock == CLOCK_REALTIME && name) {
        FILE *file = fopen(name, "r");
        long seconds = 0;
        if (file) {
            if (fscanf(file, "%ld", &seconds) == 1) now->tv_sec += seconds;
            fclose(file);
        }
    }
    return code;
}
