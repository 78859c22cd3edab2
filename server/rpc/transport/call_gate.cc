#include "server/rpc/transport/call_gate.h"

#include <chrono>
#include <map>
#include <new>
#include <pthread.h>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpc/grpc.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"

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
  void Release(grpc::CallbackServerContext* context) override { delete context; }

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
  if (caller.role == security::Role::kNone) {
    info.reason = Reason::kNoToken;
    return WithInfo(
        absl::UnauthenticatedError(absl::StrCat(
            method, " needs a bearer token: ", caller.found,
            " may do nothing here; give a token (--token-file, OCTAVO_TOKEN_FILE), or use the Unix "
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

CallGate::CallGate(const TrustConfig& config) : config_(config), resolver_(config) {
  if (config_.tokens == nullptr) return;
  thread_ = std::jthread([this](const std::stop_token& stop) {
    pthread_setname_np(pthread_self(), "oct-gate");
    Mutex mutex;
    CondVar cv;
    const std::stop_callback wake(stop, [&] {
      MutexLock lock(mutex);
      cv.NotifyAll();
    });
    MutexLock lock(mutex);
    while (!stop.stop_requested()) {
      cv.WaitFor(lock, kBetweenLooks);
      base::GuardedTurn("a turn of oct-gate broke off", [&] { Look(); });
    }
  });
}

CallGate::~CallGate() = default;

std::unique_ptr<grpc::ContextAllocator> CallGate::MakeContexts() {
  return std::make_unique<Contexts>(this);
}

absl::Status CallGate::Admit(CallContext* context, const google::protobuf::Descriptor* request) {
  const MethodRole* const line = RoleFor(request);
  if (line == nullptr)
    return absl::InternalError(
        absl::StrCat("no role may call the method of ", request->full_name()));
  OCTAVO_ASSIGN_OR_RETURN(security::Principal caller,
                          resolver_.Resolve(context->client_metadata(), context->peer()));
  OCTAVO_RETURN_IF_ERROR(CheckRole(caller, *line));
  context->principal_ = std::move(caller);
  context->line_ = line;
  if (context->principal_.proof == security::Proof::kToken && !context->entry_.has_value()) {
    MutexLock lock(mutex_);
    context->entry_ = by_token_.insert(by_token_.end(), context);
  }
  return absl::OkStatus();
}

void CallGate::Forget(Calls::iterator call) {
  MutexLock lock(mutex_);
  by_token_.erase(call);
}

void CallGate::Look() {
  config_.tokens->Look();
  struct Ended {
    grpc_call* call;
    std::string why;
  };
  std::vector<Ended> ended;
  std::map<std::string, int> calls_of;
  {
    MutexLock lock(mutex_);
    for (CallContext* const context : by_token_) {
      const auto token = config_.tokens->Again(context->principal_.token_id);
      std::string why;
      if (!token.ok()) {
        why = std::string(token.status().message());
      } else if (token->role < context->line_->role) {
        why = absl::StrCat("the bearer token has lost the role ",
                           security::Name(context->line_->role));
      } else {
        continue;
      }
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
  for (const auto& [token, calls] : calls_of)
    Log(LogLevel::kInfo, "a token is not valid any more; its calls end",
        {{"token", token}, {"calls", calls}});
}

absl::Status Admit(grpc::CallbackServerContext* context,
                   const google::protobuf::Descriptor* request) {
  auto* const call = dynamic_cast<CallContext*>(context);
  if (call == nullptr)
    return WithInfo(absl::ResourceExhaustedError("there is no memory to find out who calls"),
                    {.reason = Reason::kOutOfMemory, .field = "", .numbers = {}});
  return call->gate_->Admit(call, request);
}

security::Principal PrincipalOf(const grpc::CallbackServerContext& context) {
  const auto* const call = dynamic_cast<const CallContext*>(&context);
  return call == nullptr ? security::Principal{} : call->principal();
}

}  // namespace octavo::rpc
