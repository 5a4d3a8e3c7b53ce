/* SPDX-License-Identifier: Apache-2.0 */
/* Everyday work in which one call to the system fails: failing_work FOLDER RANKS [WORK KIND SAMPLE]...
 *
 * Each injection is a process for each rank, forked from this one, which has loaded the library and not called it, so
 * that a work takes milliseconds. For each pair of a work and a kind of calls it counts the calls of a work without
 * faults; then one fails in one rank: each of them with SAMPLE 0, else SAMPLE that are drawn; then the same with all
 * calls behind it; then the same in the next rank. Each rank of an injection is a line on standard output, in fields
 * that are separated by tabs:
 *
 *   work  kind  number ("7", or "7+" with all behind it)  failing rank  rank  end  status  what the checkpoint holds
 *   live handles  message  frames
 *
 * end: "exit 0", "signal 6", "hang". The checkpoint in FOLDER holds 1 before and 2 afterwards; other processes load
 * it: the number, the name of a status, or "-". frames: where a signal came, as file+offset. At the end a save without
 * faults leaves the checkpoint alone in FOLDER, with rows.jsonl. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "training_work.h"

enum { kLimitMs = 20000, kEndLength = 32, kContentsLength = 64 };

typedef char end_t[kEndLength];

static const int kCrashes[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
static outcome_t* outcomes; /* of the ranks, in memory that they share with this process */
static outcome_t* outcome;  /* of this rank */

/* The frames of a crash, for the process that forked this one: that has not loaded all that this one has. A second
 * thread that crashes waits, so that it does not end the process before the first is noted. */
static void note_frames(int signal_number) {
  static atomic_flag is_noted = ATOMIC_FLAG_INIT;
  void* frames[60];
  if (atomic_flag_test_and_set(&is_noted))
    for (;;) pause();
  note_calls(outcome);
  const int count = backtrace(frames, sizeof frames / sizeof *frames);
  size_t used = 0;
  for (int i = 0; i < count; i++) {
    Dl_info info;
    if (dladdr(frames[i], &info) == 0 || info.dli_fname == NULL) continue;
    const int length =
        snprintf(outcome->frames + used, sizeof outcome->frames - used, "%s%s+0x%zx", used == 0 ? "" : " ",
                 info.dli_fname, (size_t)((char*)frames[i] - (char*)info.dli_fbase));
    if (length < 0 || used + (size_t)length >= sizeof outcome->frames) break;
    used += (size_t)length;
  }
  outcome->frames[used] = '\0';
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

static void prepare_for_crashes(void) {
  void* frame[2];
  const struct rlimit no_core = {0, 0};
  backtrace(frame, 2); /* its first call loads a library */
  setrlimit(RLIMIT_CORE, &no_core);
  static char stack[1 << 16];
  const stack_t alternative = {.ss_sp = stack, .ss_size = sizeof stack};
  sigaltstack(&alternative, NULL);
  struct sigaction action = {.sa_handler = note_frames, .sa_flags = SA_ONSTACK};
  for (size_t i = 0; i < sizeof kCrashes / sizeof *kCrashes; i++) sigaction(kCrashes[i], &action, NULL);
}

/* In place of the C library's: where all signals are blocked, as in the library's threads, crashes are not. */
int pthread_sigmask(int how, const sigset_t* set, sigset_t* before) {
  sigset_t open = *(set != NULL ? set : &(sigset_t){0});
  for (size_t i = 0; i < sizeof kCrashes / sizeof *kCrashes && how != SIG_UNBLOCK; i++) sigdelset(&open, kCrashes[i]);
  return sigprocmask(how, set != NULL ? &open : NULL, before) == 0 ? 0 : errno;
}

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Below the ports that the system gives to programs that connect, which would take it before a rank listens. */
static int free_port(void) {
  for (int tries = 0; tries < 100; tries++) {
    const int port = 16384 + (getpid() * 61 + tries) % 13000;
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
    const int probe = socket(AF_INET, SOCK_STREAM, 0);
    if (probe < 0) exit(2);
    const int is_free = bind(probe, (const struct sockaddr*)&address, sizeof address) == 0;
    close(probe);
    if (is_free) return port;
  }
  exit(2);
}

static void set_number(const char* name, int64_t number) {
  char text[24];
  snprintf(text, sizeof text, "%lld", (long long)number);
  setenv(name, text, 1);
}

/* As a launcher does it. */
static void set_place_in_job(const work_t* work, int port) {
  if (work->ranks == 1) return;
  set_number("RANK", work->rank);
  set_number("LOCAL_RANK", work->rank);
  set_number("WORLD_SIZE", work->ranks);
  set_number("LOCAL_WORLD_SIZE", work->ranks);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  set_number("MASTER_PORT", port);
}

static pid_t fork_rank(const named_work_t* named, const work_t* work, int port) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  outcome = &outcomes[work->rank];
  prepare_for_crashes();
  set_place_in_job(work, port);
  named->run(work, outcome);
  outcome->live = accel_debug_live_objects();
  exit(0);
}

/* Ends a process that hangs, which says first where it is. */
static void end_with_frames(pid_t child) {
  kill(child, SIGABRT);
  for (int i = 0; i < 200; i++) {
    siginfo_t ended = {.si_pid = 0};
    if (waitid(P_PID, (id_t)child, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid != 0) return;
    nanosleep(&(struct timespec){0, 10000000}, NULL);
  }
  kill(child, SIGKILL);
}

/* Runs the work with a process for each rank. Says how those ended. */
static void run_apart(const named_work_t* named, work_t work, end_t* ends) {
  pid_t children[kMostRanks];
  const int port = free_port();
  memset(outcomes, 0, kMostRanks * sizeof *outcomes);
  for (work.rank = 0; work.rank < work.ranks; work.rank++) children[work.rank] = fork_rank(named, &work, port);
  const int64_t limit = now_ms() + kLimitMs;
  for (int running = work.ranks; running > 0;) {
    const int32_t late = now_ms() > limit;
    for (int rank = 0; rank < work.ranks; rank++) {
      int status = 0;
      if (children[rank] == 0) continue;
      if (late) end_with_frames(children[rank]);
      if (waitpid(children[rank], &status, late ? 0 : WNOHANG) == 0) continue;
      children[rank] = 0;
      running--;
      if (late)
        snprintf(ends[rank], kEndLength, "hang");
      else if (WIFSIGNALED(status))
        snprintf(ends[rank], kEndLength, "signal %d", WTERMSIG(status));
      else
        snprintf(ends[rank], kEndLength, "exit %d", WEXITSTATUS(status));
    }
    nanosleep(&(struct timespec){0, 1000000}, NULL);
  }
}

static void save_first(const char* folder, int32_t ranks) {
  end_t ends[kMostRanks];
  run_apart(work_named("save"), (work_t){.folder = folder, .number = -1, .ranks = ranks}, ends);
  for (int rank = 0; rank < ranks; rank++) {
    if (strcmp(ends[rank], "exit 0") == 0 && outcomes[rank].status >= 0) continue;
    fprintf(stderr, "rank %d cannot save without a fault: %s %s\n", rank, ends[rank], outcomes[rank].message);
    exit(2);
  }
}

/* What the ranks of another job find in the checkpoint. Returns whether that is what was there before. */
static int32_t read_contents(const char* folder, int32_t ranks, char (*contents)[kContentsLength]) {
  int32_t is_first = 1;
  end_t ends[kMostRanks];
  run_apart(work_named("load"), (work_t){.folder = folder, .ranks = ranks}, ends);
  for (int rank = 0; rank < ranks; rank++) {
    const outcome_t* const seen = &outcomes[rank];
    if (strcmp(ends[rank], "exit 0") != 0)
      snprintf(contents[rank], kContentsLength, "%s", ends[rank]);
    else if (seen->status < 0)
      snprintf(contents[rank], kContentsLength, "%s", accel_status_name(seen->status));
    else
      snprintf(contents[rank], kContentsLength, "%d", seen->contents);
    is_first = is_first && strcmp(contents[rank], "1") == 0;
  }
  return is_first;
}

static void inject(const named_work_t* named, const work_t* work, const char* kind, outcome_t* seen) {
  end_t ends[kMostRanks];
  char contents[kMostRanks][kContentsLength];
  run_apart(named, *work, ends);
  memcpy(seen, outcomes, kMostRanks * sizeof *seen);
  int32_t all_ended_well = 1;
  for (int rank = 0; rank < work->ranks; rank++) all_ended_well = all_ended_well && strcmp(ends[rank], "exit 0") == 0;
  if (work->number > 0 && !seen[work->failing].failed && all_ended_well) return; /* there were fewer calls this time */
  for (int rank = 0; rank < work->ranks; rank++)
    snprintf(contents[rank], kContentsLength, seen[rank].contents != 0 ? "%d" : "-", seen[rank].contents);
  if (named->saves && !read_contents(work->folder, work->ranks, contents)) save_first(work->folder, work->ranks);
  for (int rank = 0; rank < work->ranks; rank++) {
    printf("%s\t%s\t%lld%s\t%d\t%d\t%s\t%s\t%s\t%lld\t%s\t%s\n", named->name, kind, (long long)work->number,
           work->lasting ? "+" : "", work->failing, rank, ends[rank], accel_status_name(seen[rank].status),
           contents[rank], (long long)seen[rank].live, seen[rank].message, seen[rank].frames);
  }
  fflush(stdout);
}

/* In the rank that `work` names. `sample` is a number of calls, 0 for all, or "2/8" for the second eighth of all. */
static void inject_all(const named_work_t* named, work_t work, const char* kind, int64_t count, const char* sample) {
  long long number = 0, parts = 0;
  const int is_part = sscanf(sample, "%lld/%lld", &number, &parts) == 2;
  const int64_t wanted = is_part ? 0 : number, injections = wanted == 0 || wanted > count ? count : wanted;
  const int64_t first = is_part ? (number - 1) * injections / parts : 0,
                last = is_part ? number * injections / parts : injections;
  outcome_t seen[kMostRanks];
  for (work.lasting = 0; work.lasting < 2; work.lasting++)
    for (int64_t i = first; i < last; i++) { /* one in each part of the same length */
      const int64_t begin = i * count / injections, end = (i + 1) * count / injections;
      work.number = 1 + begin + rand() % (end - begin);
      inject(named, &work, kind, seen);
    }
}

int main(int argc, char** argv) {
  const int32_t ranks = argc < 6 ? 0 : (int32_t)strtol(argv[2], NULL, 10);
  if (argc % 3 != 0 || ranks < 1 || ranks > kMostRanks) {
    fprintf(stderr, "usage: failing_work FOLDER RANKS [WORK KIND SAMPLE]...; 1 or %d ranks\n", kMostRanks);
    return 2;
  }
  const char* const folder = argv[1];
  const named_work_t* counted = NULL;
  outcome_t without_faults[kMostRanks];
  outcomes = mmap(NULL, kMostRanks * sizeof *outcomes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (outcomes == MAP_FAILED) return 2;
  srand(1);
  write_rows(folder);
  save_first(folder, ranks);
  for (int i = 3; i < argc; i += 3) {
    const named_work_t* const named = work_named(argv[i]);
    work_t work = {.kind = kind_of_call(argv[i + 1]), .folder = folder, .ranks = ranks};
    if (named == NULL || work.kind < 0) {
      fprintf(stderr, "%s %s: no such work, or no such kind of calls\n", argv[i], argv[i + 1]);
      return 2;
    }
    if (counted != named) inject(named, &work, "none", without_faults);
    counted = named;
    for (work.failing = 0; work.failing < ranks; work.failing++)
      inject_all(named, work, argv[i + 1], without_faults[work.failing].counts[work.kind], argv[i + 2]);
  }
  save_first(folder, ranks);
  return 0;
}
