/* Feeds a file of frames into the ring of a tomography job: an example of octavo_ring.h, in C11.
 *
 *   octavo job submit --json-spec job.json     (a tomography job whose input is `push`)
 *   projection_feed $(octavo job ring jobs/<id>) FILE [--flats N] [--darks N] [--degrees D]
 *                   [--hang-at N] [--no-end 1]
 *
 * FILE holds frames of the job's type without a header: darks, flats, then projections at even
 * angles over D degrees (180). The program continues at the first frame that the job lacks, as a
 * producer that follows a dead one must.
 * --hang-at stops in the middle of frame N and sleeps (for tests)
 * --no-end  closes the ring without saying that no more frames will come
 */
#include <fcntl.h>
#include <stdlib.h>

#include "client/cpp/include/octavo/octavo_ring.h"

#define TURN 6.283185307179586

int main(int argc, char** argv) {
  octavo_ring ring;
  char error[512];
  uint64_t flats = 0, darks = 0, hang_at = UINT64_MAX, total, sequence;
  double degrees = 180;
  int file, ends = 1;
  struct stat info;

  if (argc < 4) {
    fprintf(stderr,
            "projection_feed SOCKET TICKET FILE [--flats N] [--darks N] [--degrees D] "
            "[--hang-at N] [--no-end 1]\n");
    return 2;
  }
  for (int i = 4; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--flats") == 0) flats = strtoull(argv[i + 1], NULL, 10);
    if (strcmp(argv[i], "--darks") == 0) darks = strtoull(argv[i + 1], NULL, 10);
    if (strcmp(argv[i], "--degrees") == 0) degrees = atof(argv[i + 1]);
    if (strcmp(argv[i], "--hang-at") == 0) hang_at = strtoull(argv[i + 1], NULL, 10);
    if (strcmp(argv[i], "--no-end") == 0) ends = atoi(argv[i + 1]) == 0;
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
  if (!ring.of_job) {
    fprintf(stderr, "this is the ring of a scan: ring_feed feeds it\n");
    octavo_ring_close(&ring);
    return 1;
  }
  total = (uint64_t)info.st_size / ring.record_bytes;
  for (sequence = ring.next_record; sequence < total; ++sequence) {
    const uint64_t fields = darks + flats;
    const uint32_t kind = sequence < darks    ? OCTAVO_RING_DARK
                          : sequence < fields ? OCTAVO_RING_FLAT
                                              : OCTAVO_RING_PROJECTION;
    const double angle = sequence < fields ? 0
                                           : (double)(sequence - fields) * (degrees / 360 * TURN) /
                                                 (double)(total - fields);
    char* slot = (char*)octavo_ring_begin(&ring, -1);
    if (slot == NULL && errno == EPIPE) break; /* the job wants no more */
    if (slot == NULL) {
      fprintf(stderr, "the ring is lost: %s\n", strerror(errno));
      return 1;
    }
    for (size_t done = 0; done < ring.record_bytes;) { /* straight into the shared memory */
      const size_t piece = sequence == hang_at && done < ring.record_bytes / 2
                               ? ring.record_bytes / 2 - done
                               : ring.record_bytes - done;
      const ssize_t got =
          pread(file, slot + done, piece, (off_t)(sequence * ring.record_bytes + done));
      if (got <= 0) {
        octavo_ring_fail(&ring, "the file cannot be read");
        return 1;
      }
      done += (size_t)got;
      if (sequence == hang_at && done >= ring.record_bytes / 2) {
        printf("hangs in frame %llu\n", (unsigned long long)sequence);
        fflush(stdout);
        pause();
      }
    }
    if (octavo_ring_publish_frame(&ring, sequence, kind, angle) != 0) {
      fprintf(stderr, "frame %llu: %s\n", (unsigned long long)sequence, strerror(errno));
      return 1;
    }
  }
  if (ends) octavo_ring_end(&ring);
  octavo_ring_flush(&ring, 60000);
  printf("{\"next_frame\": %llu}\n", (unsigned long long)sequence);
  octavo_ring_close(&ring);
  return 0;
}
