/* Feeds a file of raw records into a scan whose source is `ring`: an example of octavo_ring.h, in
 * C11.
 *
 *   octavo scan submit --source ring --samples 1024 --ascans 512 --bscans 256 --volumes 4
 *   ring_feed $(octavo scan ring scans/<id>) FILE [--block N] [--rate HZ] [--hang-at N]
 *
 * FILE holds records without a header. The program continues at the record that the scan wants next,
 * as the producer that follows a dead one must.
 * --block   records of a block, at most as many as a slot holds
 * --rate    like a digitizer: blocks come at this many records a second, and those that find the
 *           ring full are lost
 * --hang-at stops in the middle of the block that reaches record N and sleeps (for tests)
 */
#include <fcntl.h>
#include <stdlib.h>

#include "client/cpp/include/octavo/octavo_ring.h"

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int main(int argc, char** argv) {
  octavo_ring ring;
  char error[512];
  double rate = 0;
  uint64_t hang_at = UINT64_MAX, block = 0, total;
  int64_t began;
  int file;
  struct stat info;

  if (argc < 4) {
    fprintf(stderr, "ring_feed SOCKET TICKET FILE [--block N] [--rate HZ] [--hang-at N]\n");
    return 2;
  }
  for (int i = 4; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--block") == 0) block = strtoull(argv[i + 1], NULL, 10);
    if (strcmp(argv[i], "--rate") == 0) rate = atof(argv[i + 1]);
    if (strcmp(argv[i], "--hang-at") == 0) hang_at = strtoull(argv[i + 1], NULL, 10);
  }
  file = open(argv[3], O_RDONLY | O_CLOEXEC);
  if (file < 0 || fstat(file, &info) != 0) {
    perror(argv[3]);
    return 1;
  }
  if (octavo_ring_open(&ring, argv[1], argv[2], error, sizeof error) != 0) {
    fprintf(stderr, "%s\n", error);
    return 1;
  }
  total = (uint64_t)info.st_size / ring.record_bytes;
  if (block == 0 || block > ring.block_records) block = ring.block_records;
  began = now_ns() - (rate > 0 ? (int64_t)((double)ring.next_record / rate * 1e9) : 0);
  while (ring.next_record < total) {
    uint64_t count = total - ring.next_record < block ? total - ring.next_record : block;
    if (rate > 0) { /* the block is there when its last record is */
      const int64_t wait =
          began + (int64_t)((double)(ring.next_record + count) / rate * 1e9) - now_ns();
      struct timespec pause;
      pause.tv_sec = wait / 1000000000;
      pause.tv_nsec = wait % 1000000000;
      if (wait > 0) nanosleep(&pause, NULL);
    }
    char* slot = (char*)octavo_ring_begin(&ring, rate > 0 ? 0 : -1);
    if (slot == NULL && errno == EAGAIN) {
      octavo_ring_drop(&ring, count);
      continue;
    }
    if (slot == NULL && errno == EPIPE) break; /* the scan wants no more */
    if (slot == NULL) {
      fprintf(stderr, "the ring is lost: %s\n", strerror(errno));
      return 1;
    }
    for (size_t done = 0, bytes = (size_t)count * ring.record_bytes;
         done < bytes;) { /* straight into the shared memory */
      const size_t piece = ring.next_record + count > hang_at && bytes - done > bytes / 2
                               ? bytes / 2 + 1
                               : bytes - done;
      const ssize_t got =
          pread(file, slot + done, piece, (off_t)(ring.next_record * ring.record_bytes + done));
      if (got <= 0) {
        octavo_ring_fail(&ring, "the file cannot be read");
        return 1;
      }
      done += (size_t)got;
      if (ring.next_record + count > hang_at) {
        printf("hangs in the block of record %llu\n", (unsigned long long)ring.next_record);
        fflush(stdout);
        pause();
      }
    }
    octavo_ring_publish_at(&ring, (uint32_t)count, now_ns());
  }
  octavo_ring_end(&ring);
  octavo_ring_flush(&ring, 60000);
  printf("{\"next_record\": %llu, \"overruns\": %llu, \"overrun_records\": %llu}\n",
         (unsigned long long)ring.next_record,
         (unsigned long long)octavo_ring_producer_of(&ring)->overruns,
         (unsigned long long)octavo_ring_producer_of(&ring)->overrun_records);
  octavo_ring_close(&ring);
  return 0;
}
