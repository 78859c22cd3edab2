#include "server/buffer/buffer_store.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/buffer/buffer_errors.h"

namespace octavo::buffer {
BufferStore::BufferStore(const Context& context)
    : order_(context.devices),
      table_(context.devices, context.leases, context.clock),
      turns_(context.leases),
      maker_(table_, order_, context.ledger,
             {.server_id = context.server_id,
              .most_elements = context.most_elements,
              .quota_bytes = context.quota_bytes}),
      operations_(table_, turns_, order_, maker_, context.ledger, context.volumes),
      long_work_{.table = table_,
                 .turns = turns_,
                 .order = order_,
                 .maker = maker_,
                 .ledger = context.ledger,
                 .volumes = context.volumes},
      reads_({.table = table_,
              .order = order_,
              .frames = context.frames,
              .slow_reader_seconds = context.slow_reader_seconds},
             turns_, context.volumes),
      writes_(table_, turns_, order_, watchers_, context.frames),
      sync_(table_, turns_, order_, watchers_),
      mover_(table_, turns_, order_, context.ledger),
      exporter_(table_, turns_, context.exports),
      remover_(table_, turns_, order_, reads_, watchers_, context.exports),
      importer_({.table = table_,
                 .order = order_,
                 .watchers = watchers_,
                 .requests = requests_,
                 .maker = maker_,
                 .remover = remover_,
                 .socket = context.handoff,
                 .sessions = context.sessions,
                 .limits = context.import_limits}) {}

BufferStore::~BufferStore() { (void)Drain(); }  // the end of work takes the table's lock

absl::StatusOr<model::BufferStatus> BufferStore::Once(
    const std::string& request_id, const std::string& request_digest, const model::Caller& caller,
    base::ChangeKind kind, const std::function<absl::StatusOr<model::BufferStatus>()>& make) {
  // A retry by another caller is another request, because what it made is the first one's.
  OCTAVO_ASSIGN_OR_RETURN(
      const std::string answered,
      requests_.Begin(request_id, absl::StrCat(request_digest, "owner:", caller.principal.name),
                      caller.principal.name));
  if (!answered.empty()) return Get(answered, caller);
  auto made = base::ExceptionToStatus([&]() -> absl::StatusOr<model::BufferStatus> {
    OCTAVO_RETURN_IF_ERROR(requests_.CheckOpen());
    return make();
  });
  requests_.End(request_id, made.ok() ? made->name : "");
  if (made.ok()) watchers_.Tell(kind, *made, caller.key, "");
  return made;
}

absl::StatusOr<model::BufferStatus> BufferStore::Create(const model::BufferSpec& spec,
                                                        const model::Caller& caller) {
  return Counted(base::ExceptionToStatus([&]() -> absl::StatusOr<model::BufferStatus> {
    OCTAVO_ASSIGN_OR_RETURN(const ArrayType type, maker_.Check(spec, caller));
    return Once(spec.request_id, spec.request_digest, caller, base::ChangeKind::kCreated,
                [&] { return maker_.Create(type, spec, caller); });
  }));
}

absl::StatusOr<std::unique_ptr<BufferDraft>> BufferStore::Draft(const model::BufferSpec& spec,
                                                                const model::Caller& caller,
                                                                int device,
                                                                memory::Ledger::ChargeId charge) {
  return Counted(
      base::ExceptionToStatus([&] { return maker_.Draft(spec, caller, device, charge); }));
}

std::string BufferStore::Publish(BufferDraft& draft) {
  const model::BufferStatus status = maker_.Insert(draft);
  watchers_.Tell(base::ChangeKind::kCreated, status, draft.key(), "");
  return status.name;
}

absl::StatusOr<model::BufferStatus> BufferStore::Apply(const model::BufferApplySpec& spec,
                                                       const model::Caller& caller) {
  return RunProgram(operations_.ProgramOf(spec), caller);
}

absl::StatusOr<std::unique_ptr<LongWork>> BufferStore::BeginLong(LongWorkSpec spec,
                                                                 const model::Caller& caller) {
  spec.may_go_on = [this, asked = std::move(spec.may_go_on)]() -> absl::Status {
    OCTAVO_RETURN_IF_ERROR(requests_.CheckOpen());
    return asked ? asked() : absl::OkStatus();
  };
  OCTAVO_RETURN_IF_ERROR(spec.may_go_on());
  return LongWork::Begin(long_work_, std::move(spec), caller);
}

absl::Status BufferStore::RunLong(LongWorkSpec spec, const model::Caller& caller,
                                  const std::function<absl::Status(LongWork&)>& work) {
  const auto done = Counted(base::ExceptionToStatus([&]() -> absl::StatusOr<bool> {
    OCTAVO_ASSIGN_OR_RETURN(const auto begun, BeginLong(std::move(spec), caller));
    OCTAVO_RETURN_IF_ERROR(work(*begun));
    return true;
  }));
  return done.status();
}

absl::StatusOr<model::BufferStatus> BufferStore::MakeLong(
    LongWorkSpec spec, const model::Caller& caller,
    const std::function<absl::StatusOr<model::BufferStatus>(LongWork&)>& work) {
  return Counted(base::ExceptionToStatus([&]() -> absl::StatusOr<model::BufferStatus> {
    OCTAVO_RETURN_IF_ERROR(CheckTtl(spec.ttl_seconds));
    const std::string id = spec.request_id, digest = spec.request_digest;
    return Once(id, digest, caller, base::ChangeKind::kCreated,
                [&]() -> absl::StatusOr<model::BufferStatus> {
                  OCTAVO_ASSIGN_OR_RETURN(const auto begun, BeginLong(std::move(spec), caller));
                  return work(*begun);
                });
  }));
}

absl::StatusOr<model::BufferStatus> BufferStore::RunProgram(const model::BufferProgramSpec& spec,
                                                            const model::Caller& caller) {
  return Counted(base::ExceptionToStatus([&]() -> absl::StatusOr<model::BufferStatus> {
    OCTAVO_RETURN_IF_ERROR(CheckTtl(spec.ttl_seconds));
    return Once(spec.request_id, spec.request_digest, caller,
                spec.output.empty() ? base::ChangeKind::kCreated : base::ChangeKind::kChanged,
                [&] { return operations_.Run(spec, caller); });
  }));
}

absl::StatusOr<model::BufferStatus> BufferStore::Change(const Update& update,
                                                        const model::Caller& caller) {
  return Counted([&]() -> absl::StatusOr<model::BufferStatus> {
    OCTAVO_RETURN_IF_ERROR(CheckTtl(update.ttl_seconds));
    BufferPtr buffer;
    model::BufferStatus status;
    {
      MutexLock lock(table_.mutex());
      OCTAVO_ASSIGN_OR_RETURN(buffer, table_.FindToChange(update.name, caller));
      OCTAVO_RETURN_IF_ERROR(CheckEtag(update.name, update.etag, absl::StrCat(buffer->revision)));
      if (update.set_labels) buffer->status.labels = update.labels;
      if (update.set_ttl) buffer->ttl_seconds = update.ttl_seconds;
      table_.Touch(*buffer);
      status = table_.StatusOf(*buffer);
    }
    watchers_.Tell(base::ChangeKind::kChanged, status, buffer->key, "");
    return status;
  }());
}

absl::Status BufferStore::Destroy(const std::string& name, const std::string& etag,
                                  const std::string& lease_token, const model::Caller& caller,
                                  bool detach) {
  absl::Status answer = remover_.Destroy(name, etag, lease_token, caller, detach);
  // A client that repeats the call because it lost the answer has what it wants.
  if (absl::IsNotFound(answer) && table_.IsGone(name)) return absl::OkStatus();
  table_.CountRefusal(answer);
  return answer;
}

absl::StatusOr<model::BufferStatus> BufferStore::Sync(const std::string& name, uint32_t source,
                                                      const std::vector<uint32_t>& targets,
                                                      const std::string& lease_token,
                                                      const model::Caller& caller) {
  return Counted(base::ExceptionToStatus(
      [&] { return sync_.Sync(name, source, targets, lease_token, caller); }));
}

absl::StatusOr<std::unique_ptr<BufferWriter>> BufferStore::OpenWrite(
    const model::BufferWriteSpec& spec, const model::Caller& caller) {
  return Counted(base::ExceptionToStatus([&] { return writes_.Open(spec, caller); }));
}

absl::StatusOr<std::shared_ptr<BufferReader>> BufferStore::OpenRead(
    const model::BufferReadSpec& spec, const model::Caller& caller) {
  return Counted(base::ExceptionToStatus([&] { return reads_.Open(spec, caller); }));
}

uint64_t BufferStore::AcquireLease(const session::LeaseRequest& request,
                                   const model::Caller& caller, session::LeaseTable::Done done) {
  session::LeaseTable::Told told;
  uint64_t place = 0;
  {
    // A verb has its own lease for a moment. The turn waits for that, so that no client is refused
    // a lease because another one just reads.
    BufferTurn turn(turns_);
    MutexLock lock(table_.mutex());
    // An exclusive lease is for writes, and keeps the owner from them.
    const auto found = request.mode == session::LeaseMode::kExclusive
                           ? table_.FindToChange(request.resource, caller)
                           : table_.Find(request.resource, caller);
    if (found.ok()) {
      place = turns_.leases->Acquire(request, std::move(done), &told);
    } else {
      told.emplace_back(std::move(done), found.status());
    }
  }
  session::LeaseTable::Tell(told);
  return place;
}

absl::Status BufferStore::Wait(const std::string& name, const model::Caller& caller,
                               std::function<void(absl::StatusOr<model::BufferStatus>)> done) {
  std::map<int, std::vector<SharedEvent>> events;
  {
    MutexLock lock(table_.mutex());
    OCTAVO_ASSIGN_OR_RETURN(const BufferPtr buffer, table_.Find(name, caller));
    for (const auto& replica : buffer->replicas) {
      auto& list = events[replica->device];
      if (replica->order.last_write != nullptr) list.push_back(replica->order.last_write);
      list.insert(list.end(), replica->order.reads_since.begin(), replica->order.reads_since.end());
    }
  }
  order_.WhenAllPassed(std::move(events), [this, name, caller,
                                           done = std::move(done)](const absl::Status& first) {
    if (first.ok()) return done(Get(name, caller));
    done(WithInfo(absl::DataLossError(absl::StrCat(name, ": work on it failed: ", first.message())),
                  {.reason = Reason::kLost, .field = "name", .numbers = {}}));
  });
  return absl::OkStatus();
}

absl::StatusOr<ImportTicket> BufferStore::Import(const model::BufferImportSpec& spec,
                                                 const model::Caller& caller,
                                                 std::optional<uid_t> uid) {
  return Counted(base::ExceptionToStatus([&] { return importer_.Issue(spec, caller, uid); }));
}

std::shared_ptr<void> BufferStore::Watch(const model::Caller& caller, BufferWatchers::Told told) {
  return watchers_.Watch(caller, std::move(told), [&] { return List(caller); });
}

BufferTotals BufferStore::Count() {
  BufferTotals totals = table_.Count();
  totals.quota_bytes = maker_.limits().quota_bytes;
  LoanBook::Counts lent = importer_.Count();
  totals.loans = lent.loans;
  for (int d = 0; d < order_.devices(); ++d) totals.lent_bytes_on[d] = lent.bytes_on[d];
  return totals;
}

void BufferStore::Housekeep() {
  const int64_t now_ns = table_.Now().monotonic_ns;
  reads_.CutSlow(now_ns);
  remover_.Expire(now_ns);
}

absl::Status BufferStore::Drain() {
  order_.WaitForAll();
  return absl::OkStatus();
}

}  // namespace octavo::buffer
