#include "server/buffer/import_loan.h"

#include <type_traits>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/size_text.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"

namespace octavo::buffer {

absl::Status LoanBook::CheckBytes(int64_t bytes) const {
  if (bytes <= limits_.most_bytes) return absl::OkStatus();
  return WithInfo(
      absl::ResourceExhaustedError(absl::StrCat("byte_size: is ", bytes, "; a connection may lend ",
                                                limits_.most_bytes, " in all")),
      {.reason = Reason::kImports,
       .field = "byte_size",
       .numbers = {{"allowed", absl::StrCat(limits_.most_bytes)}}});
}

absl::Status LoanBook::Take(uint64_t connection, int device, int64_t bytes) {
  MutexLock lock(mutex_);
  const auto found = by_connection_.find(connection);
  const Use has = found == by_connection_.end() ? Use{} : found->second;
  if (has.loans >= limits_.most_loans || has.bytes > limits_.most_bytes - bytes) {
    return WithInfo(absl::ResourceExhaustedError(absl::StrCat(
                        "this connection lends ", has.loans, " buffers with ", SizeText(has.bytes),
                        "; it may ", limits_.most_loans, " with ", SizeText(limits_.most_bytes),
                        ". End some and wait for their ImportEnded, or use another connection")),
                    {.reason = Reason::kImports,
                     .field = "",
                     .numbers = {{"loans", absl::StrCat(has.loans)},
                                 {"bytes", absl::StrCat(has.bytes)},
                                 {"retryable", "true"}}});
  }
  Use& use = by_connection_[connection];
  ++use.loans;
  use.bytes += bytes;
  ++counts_.loans;
  counts_.bytes_on[device] += bytes;
  return absl::OkStatus();
}

void LoanBook::Return(uint64_t connection, int device, int64_t bytes) {
  MutexLock lock(mutex_);
  const auto use = by_connection_.find(connection);
  use->second.bytes -= bytes;
  if (--use->second.loans == 0) by_connection_.erase(use);
  --counts_.loans;
  counts_.bytes_on[device] -= bytes;
}

LoanBook::Counts LoanBook::Count() {
  MutexLock lock(mutex_);
  return counts_;
}

absl::StatusOr<std::shared_ptr<ImportLoan>> ImportLoan::Make(std::shared_ptr<LoanBook> book,
                                                             const handoff::Peer& peer, int device,
                                                             int64_t bytes, std::string buffer,
                                                             std::shared_ptr<handoff::Link> link) {
  OCTAVO_RETURN_IF_ERROR(book->Take(peer.connection, device, bytes));
  absl::Cleanup not_made = [&, counted = book] { counted->Return(peer.connection, device, bytes); };
  std::unique_ptr<ImportLoan> loan(new ImportLoan(std::move(book), peer.connection, device, bytes,
                                                  std::move(buffer), std::move(link)));
  std::move(not_made).Cancel();
  return std::shared_ptr<ImportLoan>(std::move(loan));
}

ImportLoan::~ImportLoan() {
  book_->Return(connection_, device_, bytes_);
  ImportEnd why;
  {
    MutexLock lock(mutex_);
    why = why_;
  }
  if (why == ImportEnd::kPeerGone) return;
  base::GuardedTurn("a client is not told of the end of its import", [&] {
    handoff::v1::ServerMessage message;
    message.mutable_import_ended()->set_name(buffer_);
    message.mutable_import_ended()->set_why(static_cast<handoff::v1::ImportEnded::Why>(
        static_cast<std::underlying_type_t<ImportEnd>>(why)));
    (void)link_->Send(std::move(message));
  });
}

void ImportLoan::BeginEnd(ImportEnd why) {
  MutexLock lock(mutex_);
  if (why_ == ImportEnd::kPeerGone) why_ = why;
}

}  // namespace octavo::buffer
