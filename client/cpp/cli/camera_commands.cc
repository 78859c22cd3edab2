#include <iostream>

#include "octavo/v1/ingest.grpc.pb.h"

#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/terminal.h"

namespace octavo::cli {
namespace {

void List(Session& session) {
  v1::ListCamerasResponse answer;
  if (!Check(session, v1::IngestService::NewStub(session.channel())
                          ->ListCameras(session.Context().get(), {}, &answer)))
    return;
  for (const auto& camera : answer.cameras()) {
    if (session.json) {
      PrintJson(camera);
      continue;
    }
    std::cout << camera.id() << "  " << camera.vendor() << " " << camera.model() << "  serial "
              << camera.serial() << "  " << camera.protocol();
    if (!camera.address().empty()) std::cout << "  " << camera.address();
    std::cout << (camera.in_use() ? "  in use" : "") << "\n";
  }
  if (!session.json && answer.cameras().empty()) std::cout << "no camera answers\n";
}

}  // namespace

void AddCameraCommands(CLI::App& app, Session& session) {
  auto* camera =
      app.add_subcommand("camera", "cameras that the server can reach")->require_subcommand(1);
  camera->add_subcommand("list", "those that answer now; takes about a second")
      ->callback([&session] { List(session); });
}

}  // namespace octavo::cli
