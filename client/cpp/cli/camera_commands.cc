#include <iostream>

#include "octavo/v1/ingest.grpc.pb.h"

#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/list_flags.h"
#include "client/cpp/cli/terminal.h"

namespace octavo::cli {
namespace {

void PrintCamera(const Session& session, const v1::CameraInfo& camera) {
  if (session.json) {
    PrintJson(camera);
    return;
  }
  std::cout << camera.id() << "  " << camera.vendor() << " " << camera.model() << "  serial "
            << camera.serial() << "  " << camera.protocol();
  if (!camera.address().empty()) std::cout << "  " << camera.address();
  std::cout << (camera.in_use() ? "  in use" : "") << "\n";
}

void List(Session& session, const ListFlags& flags) {
  auto stub = v1::IngestService::NewStub(session.channel());
  bool any = false;
  const bool all = flags.EachPage<v1::ListCamerasResponse>(
      session, v1::ListCamerasRequest(), "",
      [&](auto* context, const auto& page, auto* answer) {
        return stub->ListCameras(context, page, answer);
      },
      [&](const auto& answer) {
        for (const auto& camera : answer.cameras()) PrintCamera(session, camera);
        any = any || !answer.cameras().empty();
      });
  if (!session.json && all && !any) std::cout << "no camera answers\n";
}

}  // namespace

void AddCameraCommands(CLI::App& app, Session& session) {
  auto* camera =
      app.add_subcommand("camera", "cameras that the server can reach")->require_subcommand(1);
  auto* list = camera->add_subcommand("list", "those that answer now; takes about a second");
  const ListFlags flags;
  flags.AddTo(list, "in_use = false", "vendor, id");
  list->callback([&session, flags] { List(session, flags); });
}

}  // namespace octavo::cli
