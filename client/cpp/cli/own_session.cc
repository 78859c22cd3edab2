#include "client/cpp/cli/own_session.h"

#include <chrono>

#include "octavo/v1/session.grpc.pb.h"

#include "client/cpp/wire/seconds.h"

namespace octavo::cli {

OwnSession::OwnSession(Session& session, const std::string& client) : session_(session) {
  v1::OpenSessionRequest request;
  request.set_client(client);
  v1::OpenSessionResponse opened;
  if (!Check(session, v1::SessionService::NewStub(session.channel())
                          ->OpenSession(session.Context().get(), request, &opened)))
    return;
  secret_ = opened.secret();
  thread_ = std::jthread([this, seconds = SecondsOf(opened.heartbeat_interval())](
                             const std::stop_token& stop) { KeepAlive(stop, seconds); });
}

OwnSession::~OwnSession() {
  if (secret_.empty()) return;
  thread_.request_stop();
  thread_.join();
  v1::CloseSessionRequest request;
  request.set_secret(secret_);
  v1::CloseSessionResponse closed;
  // If the server refuses or does not answer, the session expires by itself.
  (void)v1::SessionService::NewStub(session_.channel())
      ->CloseSession(session_.Context().get(), request, &closed);
}

void OwnSession::KeepAlive(const std::stop_token& stop, double seconds) {
  v1::KeepAliveRequest request;
  request.set_secret(secret_);
  std::unique_lock lock(mutex_);
  while (!over_.wait_for(lock, stop, std::chrono::duration<double>(seconds),
                         [&stop] { return stop.stop_requested(); })) {
    v1::KeepAliveResponse alive;
    // The next call may succeed; the session survives several missed calls.
    (void)v1::SessionService::NewStub(session_.channel())
        ->KeepAlive(session_.Context().get(), request, &alive);
  }
}

}  // namespace octavo::cli
