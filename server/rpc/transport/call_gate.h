#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "grpcpp/server_context.h"

#include "gpu/base/mutex.h"
#include "server/base/periodic_thread.h"
#include "server/memory/quota.h"
#include "server/rpc/transport/call_audit.h"
#include "server/rpc/transport/certificate_cache.h"
#include "server/rpc/transport/method_roles.h"
#include "server/rpc/transport/principal_resolver.h"
#include "server/security/grant_book.h"
#include "server/security/principal.h"

namespace octavo::rpc {

class CallContext;

/// Lets calls in. Every call of every service and transport passes Admit (below) before anything
/// else is done for it: GatedService before the request is parsed, then the forms of handler.h and
/// the streams of clients (push_stream.h, the WriteStream of buffers). Calls by a token or a
/// certificate are remembered while they last, and end within a second after it was revoked, has
/// expired or has lost the role that they need. A call of a method that counts for a quota takes
/// its place there, from Admit to its end. Thread-safe.
class CallGate {
 public:
  /// `quotas`: null = calls are not counted; `audit`: null = calls are not written down; `grants`:
  /// null = nobody is granted anything. All must outlive the server.
  explicit CallGate(const TrustConfig& config, memory::QuotaBook* quotas = nullptr,
                    security::AuditLog* audit = nullptr, security::GrantBook* grants = nullptr);
  ~CallGate();
  CallGate(const CallGate&) = delete;
  CallGate& operator=(const CallGate&) = delete;

  /// Makes the contexts of a server's calls. The gate must outlive the server.
  std::unique_ptr<grpc::ContextAllocator> MakeContexts();

 private:
  friend class CallContext;
  friend void EndCall(grpc::CallbackServerContext* context, const grpc::Status& status,
                      const google::protobuf::Message* response);
  friend void Remember(grpc::CallbackServerContext* context,
                       const google::protobuf::Message& request);
  friend void NameObject(grpc::CallbackServerContext* context, const std::string& name);
  friend absl::Status Admit(grpc::CallbackServerContext* context,
                            const google::protobuf::Descriptor* request);
  using Calls = std::list<CallContext*>;

  absl::Status Admit(CallContext* context, const google::protobuf::Descriptor* request);
  void Forget(Calls::iterator call);
  /// Reads tokens and certificates again if they have changed, and ends calls whose proof is not
  /// valid any more.
  void Look();
  /// Why a call may not go on; empty if it may.
  std::string WhyNot(const CallContext& context) const;

  const TrustConfig config_;
  memory::QuotaBook* const quotas_;
  security::GrantBook* const grants_;
  const CallAudit audit_;
  const PrincipalResolver resolver_;
  CertificateCache certificates_;
  Mutex mutex_;
  Calls watched_ ABSL_GUARDED_BY(mutex_);       // those that can lose their proof
  std::optional<base::PeriodicThread> thread_;  // none without tokens and TLS
};

/// The context of a call, with who calls.
class CallContext final : public grpc::CallbackServerContext {
 public:
  explicit CallContext(CallGate* gate) : gate_(gate) {}
  ~CallContext() override {
    if (entry_.has_value()) gate_->Forget(*entry_);
  }
  const security::Principal& principal() const { return principal_; }

 private:
  friend class CallGate;
  friend void EndCall(grpc::CallbackServerContext* context, const grpc::Status& status,
                      const google::protobuf::Message* response);
  friend void Remember(grpc::CallbackServerContext* context,
                       const google::protobuf::Message& request);
  friend void NameObject(grpc::CallbackServerContext* context, const std::string& name);
  friend absl::Status Admit(grpc::CallbackServerContext* context,
                            const google::protobuf::Descriptor* request);
  friend void Refuse(grpc::CallbackServerContext* context, const absl::Status& status);
  CallGate* const gate_;
  absl::Status refused_;  // by Refuse
  // Set by Admit, before the handler runs; then constant. Of a call that may not be made, too, as
  // far as it was found out.
  security::Principal principal_;
  const MethodRole* line_ = nullptr;      // of the method
  const MethodRole* admitted_ = nullptr;  // the same, once the call may be made
  AuditedRequest request_;                // by Remember
  std::atomic<bool> ended_{false};
  std::atomic<bool> revoked_{false};  // its proof is not valid any more
  std::shared_ptr<const security::ClientCertificate> certificate_;  // null = none
  std::optional<CallGate::Calls::iterator> entry_;
  memory::QuotaCharge place_;  // of the caller's quota
};

/// Whether the caller may call the method that takes requests of this type. The first call of a
/// context decides; later ones repeat what it said. Unauthenticated
/// (BAD_TOKEN, NO_TOKEN), PermissionDenied (WRONG_ROLE: names the method, the role that it needs,
/// and the caller's role and how it was found), ResourceExhausted (QUOTA).
absl::Status Admit(grpc::CallbackServerContext* context,
                   const google::protobuf::Descriptor* request);

/// Makes Admit answer with this error from now on: the request of the call was dropped unread
/// (gated_service.h).
void Refuse(grpc::CallbackServerContext* context, const absl::Status& status);

/// Keeps what the audit log says of the request of a call that was let in.
void Remember(grpc::CallbackServerContext* context, const google::protobuf::Message& request);

/// What the call is about, where neither its request nor its answer names it.
void NameObject(grpc::CallbackServerContext* context, const std::string& name);

/// The call ends now: its place is free before its client sees that, and may call again; the audit
/// log gets its line. `response`: of a unary call; null = there is none. Only where the call is
/// finished, once; a call that ends in another way, for lack of memory, gives its place back with
/// its context and has no line.
void EndCall(grpc::CallbackServerContext* context, const grpc::Status& status,
             const google::protobuf::Message* response = nullptr);

/// Who makes a call that was let in.
security::Principal PrincipalOf(const grpc::CallbackServerContext& context);

}  // namespace octavo::rpc
