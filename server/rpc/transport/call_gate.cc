#include "server/rpc/transport/call_gate.h"

#include <chrono>
#include <map>
#include <new>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpc/grpc.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/rpc/convert/status.h"
#include "server/security/rights.h"

namespace octavo::rpc {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks(500);

class Contexts final : public grpc::ContextAllocator {
 public:
  using grpc::ContextAllocator::Release;
  explicit Contexts(CallGate* gate) : gate_(gate) {}
  // Null where there is no memory: gRPC then makes a context of its own, whose call Admit refuses.
  grpc::CallbackServerContext* NewCallbackServerContext() override {
    return new (std::nothrow) CallContext(gate_);
  }
  // gRPC returns contexts of its own, too: of methods that nobody offers, and those of above.
  void Release(grpc::CallbackServerContext* context) override {
    delete dynamic_cast<CallContext*>(context);
  }

 private:
  CallGate* const gate_;
};

std::string NameOf(const MethodRole& line) {
  const size_t dot = line.method.rfind('.');
  return absl::StrCat(line.method.substr(0, dot), "/", line.method.substr(dot + 1));
}

absl::Status CheckRole(const security::Principal& caller, const MethodRole& line) {
  if (caller.role >= line.role) return absl::OkStatus();
  const std::string method = NameOf(line);
  ErrorInfo info{.reason = Reason::kWrongRole,
                 .field = "",
                 .numbers = {{"method", method},
                             {"needed", std::string(security::Name(line.role))},
                             {"role", std::string(security::Name(caller.role))},
                             {"found", caller.found}}};
  // With a certificate it is known who calls.
  if (caller.role == security::Role::kNone && caller.proof != security::Proof::kCertificate) {
    info.reason = Reason::kNoToken;
    return WithInfo(
        absl::UnauthenticatedError(absl::StrCat(
            method, " needs a bearer token or a certificate: ", caller.found,
            " may do nothing here; give a token (--token-file, OCTAVO_TOKEN_FILE), or a "
            "certificate where the server takes them (--cert-file, --key-file), or use the Unix "
            "socket of the server's host")),
        info);
  }
  return WithInfo(
      absl::PermissionDeniedError(absl::StrCat(
          method, " needs the role ", security::Name(line.role), "; the caller is ", caller.name,
          " with the role ", security::Name(caller.role), ", found by ", caller.found)),
      info);
}

}  // namespace

CallGate::CallGate(const TrustConfig& config, memory::QuotaBook* quotas, security::AuditLog* audit,
                   security::GrantBook* grants)
    : config_(config), quotas_(quotas), grants_(grants), audit_(audit), resolver_(config) {
  if (config_.tokens != nullptr || config_.tls != nullptr)
    thread_.emplace("oct-gate", kBetweenLooks, [this] { Look(); });
}

CallGate::~CallGate() = default;

std::unique_ptr<grpc::ContextAllocator> CallGate::MakeContexts() {
  return std::make_unique<Contexts>(this);
}

absl::Status CallGate::Admit(CallContext* context, const google::protobuf::Descriptor* request) {
  OCTAVO_RETURN_IF_ERROR(context->refused_);
  const MethodRole* const line = RoleFor(request);
  if (line != nullptr && line == context->admitted_) return absl::OkStatus();
  if (line == nullptr)
    return absl::InternalError(
        absl::StrCat("no role may call the method of ", request->full_name()));
  const bool first = context->line_ == nullptr;
  context->line_ = line;
  if (config_.tls != nullptr && config_.tls->asks_clients())
    context->certificate_ = certificates_.Find(*context);
  OCTAVO_ASSIGN_OR_RETURN(
      context->principal_,
      resolver_.Resolve(context->client_metadata(), context->peer(), context->certificate_.get()));
  if (grants_ != nullptr) context->principal_.granted = grants_->Of(context->principal_);
  const security::Principal& caller = context->principal_;
  OCTAVO_RETURN_IF_ERROR(CheckRole(caller, *line));
  if (quotas_ != nullptr && line->counts.has_value() && first) {
    OCTAVO_ASSIGN_OR_RETURN(context->place_,
                            quotas_->Take(security::OwnerOf(caller), *line->counts, 1,
                                          absl::StrCat("a call of ", NameOf(*line))));
  }
  context->admitted_ = line;
  const security::Proof proof = caller.proof;
  if ((proof == security::Proof::kToken || proof == security::Proof::kCertificate) &&
      !context->entry_.has_value()) {
    MutexLock lock(mutex_);
    context->entry_ = watched_.insert(watched_.end(), context);
  }
  return absl::OkStatus();
}

void CallGate::Forget(Calls::iterator call) {
  MutexLock lock(mutex_);
  watched_.erase(call);
}

std::string CallGate::WhyNot(const CallContext& context) const {
  const bool token = context.principal_.proof == security::Proof::kToken;
  security::Role role = security::Role::kNone;
  if (token) {
    const auto record = config_.tokens->Again(context.principal_.token_id);
    if (!record.ok()) return std::string(record.status().message());
    role = record->role;
  } else {
    const auto holder = resolver_.OfCertificate(*context.certificate_);
    if (!holder.ok()) return std::string(holder.status().message());
    role = holder->role;
  }
  if (role >= context.line_->role) return "";
  return absl::StrCat(token ? "the bearer token" : "the client's certificate",
                      " has lost the role ", security::Name(context.line_->role));
}

void CallGate::Look() {
  if (config_.tokens != nullptr) config_.tokens->Look();
  if (config_.certificates != nullptr) config_.certificates->Look();
  if (config_.names != nullptr) config_.names->Look();
  struct Ended {
    grpc_call* call;
    std::string why;
  };
  std::vector<Ended> ended;
  std::map<std::string, int> calls_of;
  {
    MutexLock lock(mutex_);
    for (CallContext* const context : watched_) {
      std::string why = WhyNot(*context);
      if (why.empty()) continue;
      context->revoked_ = true;
      grpc_call* const call = context->c_call();
      grpc_call_ref(call);  // the context may be gone as soon as the lock is
      ended.push_back({.call = call, .why = std::move(why)});
      ++calls_of[context->principal_.found];
    }
  }
  for (const Ended& one : ended) {
    // Calls that have ended meanwhile do not mind.
    (void)grpc_call_cancel_with_status(one.call, GRPC_STATUS_UNAUTHENTICATED, one.why.c_str(),
                                       nullptr);
    grpc_call_unref(one.call);
  }
  for (const auto& [found, calls] : calls_of)
    Log(LogLevel::kInfo, "a token or a certificate is not valid any more; its calls end",
        {{"found_by", found}, {"calls", calls}});
}

absl::Status Admit(grpc::CallbackServerContext* context,
                   const google::protobuf::Descriptor* request) {
  auto* const call = dynamic_cast<CallContext*>(context);
  if (call == nullptr)
    return WithInfo(absl::ResourceExhaustedError("there is no memory to find out who calls"),
                    {.reason = Reason::kOutOfMemory, .field = "", .numbers = {}});
  return call->gate_->Admit(call, request);
}

void Refuse(grpc::CallbackServerContext* context, const absl::Status& status) {
  if (auto* const call = dynamic_cast<CallContext*>(context); call != nullptr)
    call->refused_ = status;
}

void Remember(grpc::CallbackServerContext* context, const google::protobuf::Message& request) {
  auto* const call = dynamic_cast<CallContext*>(context);
  if (call != nullptr && call->gate_->audit_.on() && call->admitted_ != nullptr)
    call->request_ = AuditedRequestOf(request);
}

void NameObject(grpc::CallbackServerContext* context, const std::string& name) {
  if (auto* const call = dynamic_cast<CallContext*>(context); call != nullptr)
    call->request_.object = name;
}

void EndCall(grpc::CallbackServerContext* context, const grpc::Status& status,
             const google::protobuf::Message* response) {
  auto* const call = dynamic_cast<CallContext*>(context);
  if (call == nullptr || call->ended_.exchange(true)) return;
  call->place_.Release();
  base::GuardedTurn("a call has no line in the audit log", [&] {
    // A call that was answered has done its work.
    if (!call->revoked_ || (status.ok() && response != nullptr))
      return call->gate_->audit_.Ended(*call, call->line_, call->principal_, call->request_, status,
                                       response);
    // The handler may have taken the cut for its client's orderly end.
    const absl::Status cut = WithInfo(
        absl::UnauthenticatedError("the caller's token or certificate is not valid any more"),
        {.reason = Reason::kBadToken, .field = "", .numbers = {}});
    call->gate_->audit_.Ended(*call, call->line_, call->principal_, call->request_, ToGrpc(cut),
                              nullptr);
  });
}

security::Principal PrincipalOf(const grpc::CallbackServerContext& context) {
  const auto* const call = dynamic_cast<const CallContext*>(&context);
  return call == nullptr ? security::Principal{} : call->principal();
}

}  // namespace octavo::rpc
