/* What the three parts of the driver say to one another. See driver.c for why they share one process. */
#ifndef STEPLANE_LOADTEST_WIRE_DRIVER_H
#define STEPLANE_LOADTEST_WIRE_DRIVER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Whatever epoll may point at begins with this. */
struct source {
    void (*ready)(struct source *source, uint32_t events);
};

uint64_t now_ns(void);
_Noreturn void die(const char *what);
void watch(struct source *source, int fd, int op, uint32_t events);
void ignore(int fd);

/* upstream.c: the engine's stand-in. Returns the port of a new loopback listener. */
int upstream_listen(void);
void upstream_set_reply(size_t bytes);
/* When the next event of a stream must leave; UINT64_MAX: no stream is open. */
uint64_t upstream_next_due_ns(void);
void upstream_tick(uint64_t now);
/* Frees what was closed; only between two batches of epoll events, which may still name it. */
void upstream_sweep(void);

/* load.c: the clients. */
struct load_plan {
    uint16_t port;
    size_t connections;
    double seconds, rate;
    char path[4096];
};

void load_start(const struct load_plan *plan);
/* False: every response has been read. */
bool load_running(void);
/* When the next paced request must leave; UINT64_MAX: nothing waits for its time. */
uint64_t load_next_due_ns(void);
void load_tick(uint64_t now);
/* Prints the figures as one JSON object and forgets the run. */
void load_report(FILE *out);

#endif
