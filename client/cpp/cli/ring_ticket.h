#pragma once

#include <iostream>

#include "octavo/v1/ingest.grpc.pb.h"

#include "client/cpp/cli/commands.h"

namespace octavo::cli {

/// Requests a ticket for a ring and prints what its producer needs: the socket's path and the
/// ticket.
inline void PrintRingTicket(Session& session, const v1::OpenRingRequest& request) {
  v1::OpenRingResponse answer;
  if (!Check(session, v1::IngestService::NewStub(session.channel())
                          ->OpenRing(session.Context().get(), request, &answer)))
    return;
  if (session.json) {
    PrintJson(answer);
  } else {
    std::cout << answer.socket_path() << " " << answer.ticket() << "\n";
  }
}

}  // namespace octavo::cli
