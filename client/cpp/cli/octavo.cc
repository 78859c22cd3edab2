// octavo: the command line. Exit codes: 0 success, 1 the server refused, 2 bad usage, 3 no server,
// 130 interrupted: work that the command itself drives ends (recon, a commit, a pushed file), work
// that it only watches continues.

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>

#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/usage_errors.h"
#include "client/cpp/cli/words.h"
#include "gpu/base/version.h"

int main(int argc, char** argv) {
  // A limit on the size of files is an error of the write, and not the end of the process, which
  // would leave its work half done.
  std::signal(SIGXFSZ, SIG_IGN);
  // Larger reads on the receiving side: about a third more throughput. Must be set before gRPC
  // starts.
  setenv("GRPC_EXPERIMENTS", "tcp_frame_size_tuning", /*overwrite=*/0);
  octavo::cli::Session session;
  const char* address = std::getenv("OCTAVO_ADDRESS");
  if (address != nullptr && *address == 0) address = nullptr;  // as if it were not set
  session.address = address == nullptr ? "127.0.0.1:50051" : address;
  session.address_from = "OCTAVO_ADDRESS";
  CLI::App app{"octavo: volumetric imaging service, command line"};
  session.address_given = address != nullptr;
  session.app = &app;
  app.add_option_function<std::string>(
         "--address",
         [&session](const std::string& given) {
           session.address = given;
           session.address_given = true;
           session.address_from = "--address";
         },
         "host:port or unix:/path (default $OCTAVO_ADDRESS or 127.0.0.1:50051)")
      ->take_last();
  const auto login = [&app](const char* flag, const char* variable, const char* help,
                            octavo::Given* given) {
    *given = octavo::GivenBy("", flag, variable);
    app.add_option_function<std::string>(
           flag, [given, flag](const std::string& value) { *given = {.value = value, .by = flag}; },
           help)
        ->take_last();
  };
  login("--token-file", "OCTAVO_TOKEN_FILE",
        "file with the bearer token to log in with (default $OCTAVO_TOKEN_FILE, or none)",
        &session.login.token_file);
  login("--ca-file", "OCTAVO_CA_FILE",
        "PEM file of the authority that issued the server's certificate; with it, host:port is "
        "spoken to by TLS (default $OCTAVO_CA_FILE, or no TLS)",
        &session.login.ca_file);
  login("--cert-file", "OCTAVO_CERT_FILE",
        "PEM file of the certificate to log in with (default $OCTAVO_CERT_FILE, or none)",
        &session.login.cert_file);
  login("--key-file", "OCTAVO_KEY_FILE", "PEM file of its private key (default $OCTAVO_KEY_FILE)",
        &session.login.key_file);
  login("--server-name", "OCTAVO_SERVER_NAME",
        "a name in the server's certificate, if the host of the address is none of them (default "
        "$OCTAVO_SERVER_NAME, or that host)",
        &session.login.server_name);
  app.set_version_flag("--version", std::string("octavo ") + octavo::Version());
  app.add_option("--timeout", session.timeout_s, "seconds for short calls (default 30)")
      ->check(octavo::cli::SecondsAboveZero());
  app.add_flag("--json", session.json, "one JSON object a line on standard output");
  app.require_subcommand(1);
  app.fallthrough();
  octavo::cli::AddScanCommands(app, session);
  octavo::cli::AddVolumeCommands(app, session);
  octavo::cli::AddBufferCommands(app, session);
  octavo::cli::AddMosaicCommands(app, session);
  octavo::cli::AddJobCommands(app, session);
  octavo::cli::AddOperationCommands(app, session);
  octavo::cli::AddReconCommand(app, session);
  octavo::cli::AddWatchCommand(app, session);
  octavo::cli::AddCameraCommands(app, session);
  octavo::cli::AddSystemCommands(app, session);
  octavo::cli::AddSessionCommands(app, session);
  octavo::cli::AddGrantCommands(app, session);
  octavo::cli::AddConvertCommand(app, session);
  octavo::cli::AddTokenCommands(app, session);
  octavo::cli::AddWebCommand(app, session);
  octavo::cli::AddBenchCommand(app, session);
  octavo::cli::CheckNaturals(&app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // help, version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    std::cerr << octavo::cli::ExplainUsage(app, e);
    return octavo::cli::kUsage;
  }
  return session.exit_code;
}
