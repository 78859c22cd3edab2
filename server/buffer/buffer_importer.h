#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "gpu/base/unique_fd.h"
#include "server/buffer/buffer_maker.h"
#include "server/buffer/buffer_remover.h"
#include "server/buffer/buffer_requests.h"
#include "server/buffer/buffer_table.h"
#include "server/buffer/buffer_watchers.h"
#include "server/buffer/import_loan.h"
#include "server/buffer/stream_ordering.h"
#include "server/handoff/fd_socket.h"
#include "server/model/buffer_types.h"
#include "server/session/client_sessions.h"

namespace octavo::buffer {

/// The answer of ImportBuffer.
struct ImportTicket {
  std::string buffer;  // name that the buffer will have
  handoff::Ticket ticket;
  int64_t expires_unix_ns = 0;
  model::ImportKind kind = model::ImportKind::kHostMemfd;
  int device = 0;
  std::string device_uuid;
  int64_t bytes = 0;  // of the memory
};

/// Makes buffers of memory that clients of the same host lend. A ticket is issued first (WAITING);
/// its grant opens it with the memory's descriptor (OPEN: the buffer is in the table); the end of
/// the grant ends it, whatever has become of the buffer by then. Thread-safe. No call waits for a
/// device.
class BufferImporter {
 public:
  struct Context {
    BufferTable& table;
    StreamOrdering& order;
    BufferWatchers& watchers;
    BufferRequests& requests;
    BufferMaker& maker;
    BufferRemover& remover;
    handoff::FdSocket* socket = nullptr;  // null: the server has none
    session::ClientSessions* sessions = nullptr;
    LoanBook::Limits limits;
  };
  explicit BufferImporter(const Context& context)
      : context_(context), book_(std::make_shared<LoanBook>(context.limits)) {}

  /// A ticket for the user `uid` (nothing = for any who may connect); a retry gets the first one.
  /// FailedPrecondition (HANDOFF_DISABLED), InvalidArgument (those of BufferMaker::Check;
  /// IMPORT_KIND, IMPORT_SIZE; device), NotFound (NO_SESSION; NO_BUFFER: of a retry),
  /// ResourceExhausted (IMPORTS, TICKETS), Unavailable (DEVICE_DOWN, DRAINING, IN_PROGRESS).
  absl::StatusOr<ImportTicket> Issue(const model::BufferImportSpec& spec,
                                     const model::Caller& caller, std::optional<uid_t> uid);

  // -- calls of the grant
  /// The client lends the memory: makes the buffer. The errors of LoanBook::Take and
  /// ImportableMemory::Import; NotFound (NO_SESSION), Unavailable (DRAINING).
  absl::StatusOr<model::BufferStatus> Open(const std::string& buffer, const UniqueFd& descriptor,
                                           const handoff::Peer& peer,
                                           std::shared_ptr<handoff::Link> link);
  /// The client has changed the bytes: the new version. NotFound (NO_BUFFER).
  absl::StatusOr<uint64_t> Publish(const std::string& buffer);
  /// The grant has ended, and the buffer with it.
  void End(const std::string& buffer, handoff::GrantEnd why);

  /// Revokes the buffers of sessions that have ended.
  void EndSessions(const std::set<std::string>& sessions);
  /// Memory that is lent now, that of buffers that are gone included, until it is unmapped.
  LoanBook::Counts Count() { return book_->Count(); }

 private:
  struct Import {
    ImportTicket ticket;
    model::BufferSpec array;
    ArrayType type;
    model::Caller caller;
    std::string session;  // sessions/<id>; empty = none
  };
  /// All that can be checked without the memory.
  absl::StatusOr<Import> Plan(const model::BufferImportSpec& spec, const model::Caller& caller);
  absl::StatusOr<ImportTicket> IssuePlanned(Import import, std::optional<uid_t> uid);
  absl::StatusOr<ImportTicket> Again(const std::string& buffer, const model::Caller& caller);
  absl::Status CheckSession(const std::string& session);

  const Context context_;
  const std::shared_ptr<LoanBook> book_;
  Mutex mutex_;  // no other lock is taken under it
  std::map<std::string, Import> imports_
      ABSL_GUARDED_BY(mutex_);  // by buffer, until the grant ends
};

}  // namespace octavo::buffer
