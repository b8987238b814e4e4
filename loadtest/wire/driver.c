/* Both ends of the bench in one thread: the clients in front of a gateway and the engines behind it.
 *
 * Owns: the epoll loop and the commands on stdin. Refuses to know: what clients and engines do (load.c, upstream.c).
 *
 * One process, which polls for a while after whatever it sent or got before it sleeps, because a send to a sleeping
 * process on another core costs the sender an interrupt to that core, on a virtual machine ten microseconds: with
 * clients and engines that sleep, a gateway pays more per request the slower it is, and all pay the same large sum at
 * low rates. Over a real network no gateway pays it.
 *
 *   driver [--listeners N] [--reply-bytes N]
 *
 * Prints {"event":"ready","ports":[…]}, then answers each line `run PORT CONNECTIONS SECONDS RATE REQUEST-FILE` on
 * stdin with one line of JSON. RATE 0: as fast as the connections go round. Ends with stdin.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 256, POLL_NS = 300 * 1000 };

static int epoll_fd;

void die(const char *what) {
    fprintf(stderr, "driver: %s: %s\n", what, strerror(errno));
    exit(1);
}

uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void watch(struct source *source, int fd, int op, uint32_t events) {
    struct epoll_event e = {.events = events, .data.ptr = source};
    if (epoll_ctl(epoll_fd, op, fd, &e) < 0) die("epoll_ctl");
}

void ignore(int fd) {
    if (epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL) < 0) die("epoll_ctl");
}

static void take_command(struct source *source, uint32_t events) {
    static char line[8192];
    static size_t len;
    (void)source, (void)events;
    ssize_t n = read(STDIN_FILENO, line + len, sizeof line - 1 - len);
    if (n <= 0) exit(0);
    len += (size_t)n;
    line[len] = 0;
    if (!strchr(line, '\n')) return;
    len = 0;
    struct load_plan plan;
    if (load_running() || sscanf(line, "run %hu %zu %lf %lf %4095[^\n]", &plan.port, &plan.connections, &plan.seconds,
                                 &plan.rate, plan.path) != 5) {
        fprintf(stderr, "driver: cannot do: %s", line);
        exit(2);
    }
    load_start(&plan);
}

/* How long the loop may sleep. */
static struct timespec patience(uint64_t last_active_ns) {
    uint64_t now = now_ns(), stream = upstream_next_due_ns(), request = load_next_due_ns();
    uint64_t due = stream < request ? stream : request, wait = 1000000000u;
    if (load_running() && now - last_active_ns < POLL_NS) wait = 0;
    else if (due <= now) wait = 0;
    else if (due - now < wait) wait = due - now;
    return (struct timespec){.tv_sec = (time_t)(wait / 1000000000u), .tv_nsec = (long)(wait % 1000000000u)};
}

int main(int argc, char **argv) {
    int listeners = 1;
    size_t reply_bytes = 1024;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 < argc && !strcmp(argv[i], "--listeners")) listeners = atoi(argv[i + 1]);
        else if (i + 1 < argc && !strcmp(argv[i], "--reply-bytes")) reply_bytes = strtoul(argv[i + 1], NULL, 10);
        else {
            fprintf(stderr, "usage: driver [--listeners N] [--reply-bytes N]\n");
            return 2;
        }
    }
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0) die("epoll_create1");
    upstream_set_reply(reply_bytes);
    printf("{\"event\":\"ready\",\"ports\":[");
    for (int i = 0; i < listeners; i++) printf("%s%d", i ? "," : "", upstream_listen());
    printf("]}\n");
    fflush(stdout);
    static struct source commands = {take_command};
    watch(&commands, STDIN_FILENO, EPOLL_CTL_ADD, EPOLLIN);

    struct epoll_event ready[BATCH];
    uint64_t last_active_ns = 0;
    for (;;) {
        bool was_running = load_running();
        struct timespec sleep = patience(last_active_ns);
        int n = epoll_pwait2(epoll_fd, ready, BATCH, &sleep, NULL);
        if (n < 0 && errno != EINTR) die("epoll_pwait2");
        for (int i = 0; i < n; i++) {
            struct source *source = ready[i].data.ptr;
            source->ready(source, ready[i].events);
        }
        uint64_t now = now_ns();
        if (n > 0 || upstream_next_due_ns() <= now || load_next_due_ns() <= now) last_active_ns = now;
        if (upstream_next_due_ns() <= now) upstream_tick(now);
        upstream_sweep();
        if (!was_running) continue;
        load_tick(now);
        if (load_running()) continue;
        load_report(stdout);
        fflush(stdout);
    }
}
