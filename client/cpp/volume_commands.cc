#include <fstream>
#include <iostream>

#include "client/cpp/commands.h"
#include "client/cpp/terminal.h"
#include "octavo/v1/volume.grpc.pb.h"

namespace octavo::cli {
namespace {

void PrintVolume(const Session& session, const v1::Volume& volume) {
  if (session.json) {
    PrintJson(volume);
    return;
  }
  std::cout << volume.name() << "  #" << volume.index() << "  " << v1::VolumeState_Name(volume.state()) << "  [" << volume.shape(0) << ", "
            << volume.shape(1) << ", " << volume.shape(2) << "] " << v1::DType_Name(volume.dtype()) << "  "
            << Bytes(static_cast<double>(volume.bytes())) << "  held " << Seconds(volume.held_seconds());
  if (volume.missing_ascans() > 0) std::cout << "  " << volume.missing_ascans() << " A-scans missing";
  if (!volume.title().empty()) std::cout << "  " << volume.title();
  if (volume.has_commit()) std::cout << "  " << volume.commit().uri();
  if (!volume.reason().empty()) std::cout << "  (" << volume.reason() << ")";
  if (!volume.last_error().empty()) std::cout << "  last commit failed: " << volume.last_error();
  std::cout << "\n";
}

const char* NumpyName(v1::DType dtype) {
  switch (dtype) {
    case v1::U8: return "|u1";
    case v1::I8: return "|i1";
    case v1::U16: return "<u2";
    case v1::I16: return "<i2";
    case v1::F16: return "<f2";
    case v1::F64: return "<f8";
    case v1::C64: return "<c8";
    default: return "<f4";
  }
}

void Read(Session& session, const std::string& name, const std::vector<int64_t>& box, const std::string& path) {
  grpc::ClientContext context;
  v1::ReadVolumeRequest request;
  request.set_name(name);
  for (size_t i = 0; i < box.size(); ++i) (i < 3 ? request.add_start(box[i]) : request.add_count(box[i]));
  auto reader = v1::VolumeService::NewStub(session.channel())->ReadVolume(&context, request);
  v1::ReadVolumeResponse part;
  std::ofstream file;
  uint64_t total = 0, done = 0;
  {
    ProgressBar bar("reading");
    while (reader->Read(&part)) {
      if (part.has_volume()) {
        total = part.total_bytes();
        file.open(path, std::ios::binary);
        std::string head = std::string("{'descr': '") + NumpyName(part.volume().dtype()) + "', 'fortran_order': False, 'shape': (" +
                           std::to_string(part.shape(0)) + ", " + std::to_string(part.shape(1)) + ", " + std::to_string(part.shape(2)) + "), }";
        head.append(63 - (10 + head.size()) % 64, ' ');
        head += '\n';
        file.write("\x93NUMPY\x01\x00", 8);
        file.put(static_cast<char>(head.size() & 255)).put(static_cast<char>(head.size() >> 8));
        file << head;
      }
      file.write(part.data().data(), static_cast<std::streamsize>(part.data().size()));
      done += part.data().size();
      bar.Update(total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0, Bytes(static_cast<double>(done)), 0);
    }
  }
  if (!Check(session, reader->Finish())) return;
  file.close();
  if (!file || done != total) {
    std::cerr << "octavo: could not write " << path << "\n";
    session.exit_code = kFailed;
    return;
  }
  std::cout << path << "  " << Bytes(static_cast<double>(done)) << "\n";
}

void Commit(Session& session, const v1::CommitVolumeRequest& request) {
  grpc::ClientContext context;
  auto reader = v1::VolumeService::NewStub(session.channel())->CommitVolume(&context, request);
  v1::CommitProgress step;
  {
    ProgressBar bar("committing");
    while (reader->Read(&step)) {
      if (session.json) PrintJson(step);
      const double rate = step.seconds() > 0 ? static_cast<double>(step.done_bytes()) / step.seconds() : 0;
      if (!session.json && step.total_bytes() > 0) {
        bar.Update(static_cast<double>(step.done_bytes()) / static_cast<double>(step.total_bytes()), Bytes(rate) + "/s, " + step.stage(),
                   rate > 0 ? static_cast<double>(step.total_bytes() - step.done_bytes()) / rate : 0);
      }
    }
  }
  if (!Check(session, reader->Finish()) || session.json) return;
  std::cout << step.result().uri() << "  " << Bytes(static_cast<double>(step.result().raw_bytes())) << " as "
            << Bytes(static_cast<double>(step.result().bytes())) << " in " << Seconds(step.result().seconds()) << "  " << step.result().checksum() << "\n";
}

}  // namespace

void AddVolumeCommands(CLI::App& app, Session& session) {
  auto* volume = app.add_subcommand("volume", "look at, read, keep or drop volumes")->require_subcommand(1);
  auto name = std::make_shared<std::string>();

  auto* list = volume->add_subcommand("list", "volumes in device memory, oldest first");
  auto scan = std::make_shared<std::string>();
  auto all = std::make_shared<bool>(false);
  list->add_option("--scan", *scan, "only of this scan");
  list->add_flag("--all", *all, "also those that have left memory");
  list->callback([&session, scan, all] {
    auto stub = v1::VolumeService::NewStub(session.channel());
    v1::ListVolumesRequest request;
    request.set_scan(*scan);
    for (int state = 1; *all && v1::VolumeState_IsValid(state); ++state) request.add_states(static_cast<v1::VolumeState>(state));
    do {
      v1::ListVolumesResponse answer;
      if (!Check(session, stub->ListVolumes(session.Context().get(), request, &answer))) return;
      for (const auto& one : answer.volumes()) PrintVolume(session, one);
      request.set_page_token(answer.next_page_token());
    } while (!request.page_token().empty());
  });

  const auto unary = [&](const char* verb, const char* help, auto call) {
    auto* command = volume->add_subcommand(verb, help);
    command->add_option("volume", *name, "volumes/...")->required();
    command->callback([&session, name, call] {
      v1::Volume answer;
      if (Check(session, call(*v1::VolumeService::NewStub(session.channel()), session, *name, &answer))) PrintVolume(session, answer);
    });
  };
  unary("show", "one volume", [](v1::VolumeService::Stub& stub, Session& s, const std::string& which, v1::Volume* answer) {
    v1::GetVolumeRequest request;
    request.set_name(which);
    return stub.GetVolume(s.Context().get(), request, answer);
  });
  unary("discard", "free its memory; the data is gone", [](v1::VolumeService::Stub& stub, Session& s, const std::string& which, v1::Volume* answer) {
    v1::DiscardVolumeRequest request;
    request.set_name(which);
    return stub.DiscardVolume(s.Context().get(), request, answer);
  });
  unary("hold", "keep a volume of a LIVE scan", [](v1::VolumeService::Stub& stub, Session& s, const std::string& which, v1::Volume* answer) {
    v1::HoldVolumeRequest request;
    request.set_name(which);
    return stub.HoldVolume(s.Context().get(), request, answer);
  });

  auto* read = volume->add_subcommand("read", "copy a volume, or a box of it, into a .npy file here");
  auto path = std::make_shared<std::string>("volume.npy");
  auto box = std::make_shared<std::vector<int64_t>>();
  read->add_option("volume", *name, "volumes/...")->required();
  read->add_option("-o,--output", *path, "file (default volume.npy)");
  read->add_option("--box", *box, "y,x,z,ny,nx,nz")->delimiter(',')->expected(6);
  read->callback([&session, name, path, box] { Read(session, *name, *box, *path); });

  auto* commit = volume->add_subcommand("commit", "write it to the server's storage and free its memory");
  auto format = std::make_shared<std::string>("zarr");
  auto destination = std::make_shared<std::string>("{title}_{index:05}");
  auto request_id = std::make_shared<std::string>();
  auto chunk = std::make_shared<std::vector<uint32_t>>();
  auto shard = std::make_shared<std::vector<uint32_t>>();
  auto level = std::make_shared<int>(0);
  auto raw = std::make_shared<bool>(false);
  commit->add_option("volume", *name, "volumes/...")->required();
  commit->add_option("destination", *destination, "path below the server's storage root, with {scan} {index:05} {title} {date}");
  commit->add_option("--format", *format, "zarr (OME-Zarr 0.5) | npy")->check(CLI::IsMember({"zarr", "npy"}));
  commit->add_option("--chunk", *chunk, "y,x,z voxels")->delimiter(',')->expected(3);
  commit->add_option("--shard", *shard, "y,x,z voxels")->delimiter(',')->expected(3);
  commit->add_option("--zstd", *level, "compression level, 1 to 19");
  commit->add_flag("--raw", *raw, "no compression");
  commit->add_option("--request-id", *request_id, "a retry with the same id returns the first result");
  commit->callback([&session, name, format, destination, chunk, shard, level, raw, request_id] {
    v1::CommitVolumeRequest message;
    message.set_name(*name);
    message.set_request_id(*request_id);
    auto* options = message.mutable_options();
    options->set_destination(*destination);
    options->set_format(*format == "npy" ? v1::NPY : v1::OME_ZARR_05);
    options->mutable_chunk()->Add(chunk->begin(), chunk->end());
    options->mutable_shard()->Add(shard->begin(), shard->end());
    options->set_zstd_level(*level);
    options->set_uncompressed(*raw);
    Commit(session, message);
  });
}

}  // namespace octavo::cli
