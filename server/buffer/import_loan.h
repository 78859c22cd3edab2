#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "server/handoff/fd_socket.h"

namespace octavo::buffer {

/// How an imported buffer ends. The numbers are those of octavo.handoff.v1.ImportEnded.Why; a
/// client that has gone is told nothing.
enum class ImportEnd : uint8_t {
  kPeerGone = 0,
  kReleased = 1,
  kDestroyed = 2,
  kExpired = 3,
  kSessionEnded = 4
};

/// What clients lend: counts for each connection and device, and their limits. A loan counts until
/// its memory is unmapped. Thread-safe.
class LoanBook {
 public:
  struct Limits {  // of a connection
    int64_t most_loans = 64;
    int64_t most_bytes = int64_t{256} << 30;
  };
  explicit LoanBook(Limits limits) : limits_(limits) {}

  /// ResourceExhausted (IMPORTS) beyond the limits of the connection.
  absl::Status Take(uint64_t connection, int device, int64_t bytes);
  void Return(uint64_t connection, int device, int64_t bytes);
  /// ResourceExhausted (IMPORTS) for bytes that no connection may lend.
  absl::Status CheckBytes(int64_t bytes) const;

  struct Counts {  // now
    int64_t loans = 0;
    std::map<int, int64_t> bytes_on;  // by device
  };
  Counts Count();

 private:
  struct Use {
    int64_t loans = 0, bytes = 0;
  };
  const Limits limits_;
  Mutex mutex_;
  std::map<uint64_t, Use> by_connection_ ABSL_GUARDED_BY(mutex_);
  Counts counts_ ABSL_GUARDED_BY(mutex_);
};

/// Memory that a client lends to a buffer, from its import until it is unmapped: the replica holds
/// it and ends it after its memory. The end gives back what the book counts, and tells the client.
class ImportLoan {
 public:
  /// Makes a loan that the book counts. The errors of LoanBook::Take.
  static absl::StatusOr<std::shared_ptr<ImportLoan>> Make(std::shared_ptr<LoanBook> book,
                                                          const handoff::Peer& peer, int device,
                                                          int64_t bytes, std::string buffer,
                                                          std::shared_ptr<handoff::Link> link);
  ~ImportLoan();
  ImportLoan(const ImportLoan&) = delete;
  ImportLoan& operator=(const ImportLoan&) = delete;

  /// The buffer is gone; the client is told why once the memory is unmapped. Without this, it is
  /// told nothing. Thread-safe; the first call counts.
  void BeginEnd(ImportEnd why);

 private:
  ImportLoan(std::shared_ptr<LoanBook> book, uint64_t connection, int device, int64_t bytes,
             std::string buffer, std::shared_ptr<handoff::Link> link)
      : book_(std::move(book)),
        connection_(connection),
        device_(device),
        bytes_(bytes),
        buffer_(std::move(buffer)),
        link_(std::move(link)) {}

  const std::shared_ptr<LoanBook> book_;
  const uint64_t connection_;
  const int device_;
  const int64_t bytes_;
  const std::string buffer_;
  const std::shared_ptr<handoff::Link> link_;
  Mutex mutex_;
  ImportEnd why_ ABSL_GUARDED_BY(mutex_) = ImportEnd::kPeerGone;
};

}  // namespace octavo::buffer
