#include <fstream>
#include <iostream>
#include <sstream>

#include "google/protobuf/util/json_util.h"

#include "octavo/v1/scan.grpc.pb.h"
#include "octavo/v1/source.grpc.pb.h"

#include "client/cpp/commands.h"
#include "client/cpp/format_flags.h"
#include "client/cpp/pattern_flags.h"
#include "client/cpp/terminal.h"

namespace octavo::cli {
namespace {

/// What the flags of submit and plan say.
struct SpecFlags {
  int spread = -1;  // not asked for
  bool striped = false;
  std::string spec_file, source = "simulated", path, raw_type, title, mode, on_full, on_tier_full, disposition, destination, format, dtype, value,
                         window, k, interp, background, device, request_id, fixed_pattern, camera, pixel_format, trigger, queue, insert;
  std::vector<std::string> labels;
  std::vector<double> levels, poly;
  std::vector<float> wavelength;
  PatternFlags pattern;
  uint32_t samples = 0, hold_slots = 0, keep_last = 0, depth = 0, fft_length = 0, loops = 1, block = 0, channels = 0, channel = 0, record_average = 0,
           adc_bits = 0, camera_height = 0, group_records = 0, window_records = 0;
  uint64_t seed = 0;
  bool fast = false, aip = false, watch = false;
  double rate = 0, ttl = 0, a2 = 0, a3 = 0, exposure = 0, frame_rate = 0;
  std::string angiography, waveform, plot;  // the last two: plan
};

template <class Enum>
Enum Parse(const std::string& text, bool (*parse)(const std::string&, Enum*), const char* flag, const std::string& prefix = "") {
  std::string upper = prefix;
  for (const char c : text) upper += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  Enum value{};
  if (!parse(upper, &value)) throw CLI::ValidationError(flag, "does not know '" + text + "'");
  return value;
}

void AddSpecFlags(CLI::App* app, SpecFlags& f) {
  app->add_option("--json-spec", f.spec_file, "a ScanSpec as JSON; flags given beside it win");
  app->add_option("--source", f.source, "simulated | replay | push | camera | ring");
  app->add_option("--camera", f.camera, "camera: its id (see octavo camera list); default: the only one");
  app->add_option("--pixel-format", f.pixel_format, "camera: Mono8 | Mono12 | Mono16 | Mono12Packed | Mono12p");
  app->add_option("--height", f.camera_height, "camera: lines of a frame; --samples is its width");
  app->add_option("--exposure", f.exposure, "camera: microseconds");
  app->add_option("--frame-rate", f.frame_rate, "camera: frames per second");
  app->add_option("--trigger", f.trigger, "camera: trigger source; default: free running");
  app->add_option("--queue", f.queue, "begin when the scans before it in this queue take no more records");
  app->add_option("--insert", f.insert, "into the queue: append | interrupt-at-volume | interrupt-now");
  app->add_option("--path", f.path, "replay: file under a replay root (.npy or raw)");
  app->add_option("--loops", f.loops, "replay: how often; 0 = until the scan has its volumes");
  app->add_option("--seed", f.seed, "simulated: seed");
  app->add_flag("--fast", f.fast, "simulated: as fast as possible");
  app->add_option("--samples", f.samples, "samples per record (default 1024; .npy: from the file)");
  app->add_option("--raw-type", f.raw_type, "u8 | u16 | i16 | f32 | u12p | u12-packed (12 bits, two samples in three bytes)");
  app->add_option("--adc-bits", f.adc_bits, "bits of a sample that carry numbers; 0 = as the source declares");
  app->add_option("--channels", f.channels, "interleaved channels of a record; 0 = 1");
  app->add_option("--channel", f.channel, "the channel that is processed");
  app->add_option("--record-average", f.record_average, "records of the source in one of the pattern; 0 = 1");
  app->add_option("--rate", f.rate, "records per second");
  app->add_option("--block", f.block, "records per block; 0 = chosen");
  AddPatternFlags(app, f.pattern);
  app->add_option("--title", f.title, "for people and file names");
  app->add_option("--label", f.labels, "key=value, may be repeated");
  app->add_option("--mode", f.mode, "live | capture");
  app->add_option("--hold-slots", f.hold_slots, "volumes that can be held; 0 = chosen");
  app->add_option("--on-full", f.on_full, "stop-at-volume | drop-new | spill-host | spill-disk");
  app->add_option("--on-tier-full", f.on_tier_full, "with spill-...: stop-at-volume | drop-new");
  app->add_option("--keep-last", f.keep_last, "live: a ring of the last so many volumes and those held");
  app->add_option("--ttl", f.ttl, "seconds after which volumes are discarded unless held");
  app->add_option("--disposition", f.disposition, "ask | auto-commit | auto-discard");
  app->add_option("--destination", f.destination, "auto-commit: path, with {scan} {index:05} {title} {date}");
  app->add_option("--format", f.format, "auto-commit: zarr | npy | nrrd | nifti | tiff | mat | hdf5 | bin");
  app->add_option("--dtype", f.dtype, "u8 | i8 | u16 | f16 | f32 | c64 (complex); default: u16 for dB of integer samples, else f32");
  app->add_option("--value", f.value, "db | magnitude | power | real | complex");
  app->add_option("--levels", f.levels, "lo,hi in value units; default of integers: what nothing or next to nothing is clipped by")
      ->delimiter(',')
      ->expected(2);
  app->add_option("--window", f.window, "rect | hann | hamming | gauss | blackman | flat-top");
  app->add_option("--a2", f.a2, "dispersion, rad per sample^2");
  app->add_option("--a3", f.a3, "dispersion, rad per sample^3");
  app->add_option("--k", f.k, "none | source | poly | a text file of wavelengths in nm");
  app->add_option("--poly", f.poly, "coefficients for --k poly")->delimiter(',');
  app->add_option("--interp", f.interp, "linear | cubic | lanczos");
  app->add_option("--background", f.background, "none | rolling | bscan");
  app->add_option("--group-records", f.group_records, "rolling background: records that have one; 0 = a B-scan with its flyback");
  app->add_option("--window-records", f.window_records, "rolling background: records that it is the mean of; 0 = the group");
  app->add_option("--fixed-pattern-noise", f.fixed_pattern, "keep | mean | quiet-segment: subtract that of each B-scan");
  app->add_option("--depth", f.depth, "depth samples kept; 0 = half the transform");
  app->add_option("--fft-length", f.fft_length, "transform length; 0 = chosen");
  app->add_option("--angiography", f.angiography, "repeated patterns: speckle-variance | amplitude-decorrelation");
  app->add_flag("--aip", f.aip, "compute the en face mean too");
  app->add_option("--device", f.device, "auto | devices/N");
  app->add_option("--spread", f.spread, "devices that share the B-scans; 0 = all healthy ones")->check(CLI::Range(0, 1024));
  app->add_flag("--striped", f.striped, "volumes stay on the devices that computed them, B-scans in turn; with --spread");
  app->add_option("--request-id", f.request_id, "a retry with the same id returns the first scan");
}

v1::ScanSpec BuildSpec(const SpecFlags& f, const CLI::App* app) {
  v1::ScanSpec spec;
  const bool from_file = !f.spec_file.empty();
  if (from_file) {
    std::ifstream file(f.spec_file);
    std::stringstream text;
    text << file.rdbuf();
    const auto parsed = google::protobuf::util::JsonStringToMessage(text.str(), &spec);
    if (!file || !parsed.ok()) throw CLI::ValidationError("--json-spec", f.spec_file + " is no ScanSpec: " + parsed.ToString());
  }
  const auto given = [&](const char* flag) { return app->count(flag) > 0 || !from_file; };
  if (given("--source")) {
    if (f.source == "simulated") {
      spec.mutable_simulated()->set_seed(f.seed);
      spec.mutable_simulated()->set_as_fast_as_possible(f.fast);
    } else if (f.source == "replay") {
      spec.mutable_replay()->set_path(f.path);
      spec.mutable_replay()->set_loops(f.loops);
      spec.mutable_replay()->set_rate_hz(f.rate);
    } else if (f.source == "push") {
      spec.mutable_push();
    } else if (f.source == "ring") {
      spec.mutable_ring();
    } else if (f.source == "camera") {
      auto* camera = spec.mutable_camera();
      camera->set_id(f.camera);
      camera->set_pixel_format(f.pixel_format);
      camera->set_height(f.camera_height);
      camera->set_exposure_us(f.exposure);
      camera->set_frame_rate_hz(f.frame_rate);
      camera->set_trigger_source(f.trigger);
    } else {
      throw CLI::ValidationError("--source", "does not know '" + f.source + "'");
    }
  }
  auto* a = spec.mutable_acquisition();
  if (f.samples != 0) a->set_samples_per_record(f.samples);
  if (f.rate != 0) a->set_record_rate_hz(f.rate);
  if (f.block != 0) a->set_records_per_block(f.block);
  if (!f.raw_type.empty()) a->set_raw_type(Parse<v1::RawType>(f.raw_type, v1::RawType_Parse, "--raw-type", "RAW_"));
  if (f.channels != 0) a->set_channels(f.channels);
  if (f.channel != 0) a->set_channel(f.channel);
  if (f.record_average != 0) a->set_record_average(f.record_average);
  if (f.adc_bits != 0) a->set_adc_bits(f.adc_bits);
  BuildPattern(f.pattern, app, from_file, spec.mutable_pattern());
  if (!f.title.empty()) spec.set_title(f.title);
  for (const auto& label : f.labels) {
    const size_t equals = label.find('=');
    if (equals == std::string::npos) throw CLI::ValidationError("--label", "'" + label + "' is not key=value");
    (*spec.mutable_labels())[label.substr(0, equals)] = label.substr(equals + 1);
  }
  auto* r = spec.mutable_retention();
  if (!f.mode.empty()) r->set_mode(Parse<v1::RetentionMode>(f.mode, v1::RetentionMode_Parse, "--mode"));
  if (f.hold_slots != 0) r->set_hold_slots(f.hold_slots);
  if (!f.on_full.empty()) r->set_on_full(Parse<v1::OnFull>(f.on_full, v1::OnFull_Parse, "--on-full"));
  if (!f.on_tier_full.empty()) r->set_on_tier_full(Parse<v1::OnFull>(f.on_tier_full, v1::OnFull_Parse, "--on-tier-full"));
  if (f.keep_last != 0) r->set_keep_last(f.keep_last);
  if (f.ttl != 0) r->set_ttl_seconds(f.ttl);
  if (!f.disposition.empty()) r->set_disposition(Parse<v1::Disposition>(f.disposition, v1::Disposition_Parse, "--disposition"));
  if (!f.destination.empty()) r->mutable_auto_commit()->set_destination(f.destination);
  if (!f.format.empty()) r->mutable_auto_commit()->set_format(ParseFormat(f.format, "--format"));
  auto* c = spec.mutable_processing();
  if (!f.dtype.empty()) c->set_dtype(Parse<v1::DType>(f.dtype, v1::DType_Parse, "--dtype"));
  if (!f.value.empty()) c->set_value(Parse<v1::Value>(f.value, v1::Value_Parse, "--value"));
  if (f.levels.size() == 2) {
    c->mutable_levels()->set_lo(static_cast<float>(f.levels[0]));
    c->mutable_levels()->set_hi(static_cast<float>(f.levels[1]));
  }
  if (!f.window.empty()) c->set_window(Parse<v1::WindowKind>(f.window, v1::WindowKind_Parse, "--window"));
  if (f.a2 != 0) c->mutable_dispersion()->set_a2(f.a2);
  if (f.a3 != 0) c->mutable_dispersion()->set_a3(f.a3);
  if (!f.interp.empty()) c->mutable_k_linearisation()->set_interpolation(Parse<v1::Interpolation>(f.interp, v1::Interpolation_Parse, "--interp"));
  if (f.k == "none") {
    c->mutable_k_linearisation()->set_none(true);
  } else if (f.k == "source") {
    c->mutable_k_linearisation()->set_from_source(true);
  } else if (f.k == "poly") {
    c->mutable_k_linearisation()->mutable_polynomial()->mutable_values()->Add(f.poly.begin(), f.poly.end());
  } else if (!f.k.empty()) {
    std::ifstream file(f.k);
    if (!file) throw CLI::ValidationError("--k", "cannot read " + f.k);
    for (double nm; file >> nm;) c->mutable_k_linearisation()->mutable_wavelength_nm()->add_values(nm);
  }
  if (!f.background.empty()) {
    c->mutable_background()->set_mode(Parse<v1::Processing::Background::Mode>(f.background, v1::Processing::Background::Mode_Parse, "--background"));
  }
  if (f.group_records != 0) c->mutable_background()->set_group_records(f.group_records);
  if (f.window_records != 0) c->mutable_background()->set_window_records(f.window_records);
  if (!f.fixed_pattern.empty()) {
    c->set_fixed_pattern_noise(
        Parse<v1::Processing::FixedPatternNoise>(f.fixed_pattern, v1::Processing::FixedPatternNoise_Parse, "--fixed-pattern-noise"));
  }
  if (f.depth != 0) c->set_depth(f.depth);
  if (f.fft_length != 0) c->set_fft_length(f.fft_length);
  if (!f.angiography.empty()) {
    spec.mutable_products()->set_angiography(Parse<v1::Products::MotionContrast>(f.angiography, v1::Products::MotionContrast_Parse, "--angiography"));
  }
  if (f.aip) spec.mutable_products()->set_aip(true);
  if (!f.queue.empty()) spec.mutable_queue()->set_name(f.queue);
  if (!f.insert.empty()) spec.mutable_queue()->set_insert(Parse<v1::Queue::Insert>(f.insert, v1::Queue::Insert_Parse, "--insert"));
  if (!f.device.empty()) spec.set_device(f.device);
  if (f.striped) spec.mutable_spread()->set_striped(true);
  if (f.spread >= 0) spec.mutable_spread()->set_count(static_cast<uint32_t>(f.spread));
  if (!f.request_id.empty()) spec.set_request_id(f.request_id);
  return spec;
}

void PrintScan(const Session& session, const v1::Scan& scan) {
  if (session.json) {
    PrintJson(scan);
    return;
  }
  std::cout << scan.name() << "  " << v1::ScanState_Name(scan.state()) << "  " << scan.spec().title() << "  volumes " << scan.volumes_done()
            << " done, " << scan.volumes_held() << " held, " << scan.volumes_dropped() << " dropped  " << Count(scan.records_per_second())
            << " records/s";
  if (scan.duplicate_records() > 0) std::cout << "  " << scan.duplicate_records() << " records came again";
  if (scan.out_of_range_records() > 0) std::cout << "  " << scan.out_of_range_records() << " records for no volume";
  if (scan.non_finite_records() > 0) std::cout << "  " << scan.non_finite_records() << " records with samples that are no finite number";
  if (scan.blocks_dropped() > 0) std::cout << "  " << scan.blocks_dropped() << " blocks dropped";
  if (scan.queue_position() > 0) std::cout << "  " << scan.queue_position() << ". in queue " << scan.spec().queue().name();
  if (const int64_t clipped = scan.clipped_below() + scan.clipped_above(); clipped > 0) std::cout << "  " << Clipped(clipped, scan.voxels());
  if (scan.source().lost_records() > 0) std::cout << "  " << scan.source().lost_records() << " records lost at the source";
  if (!scan.reason().empty()) std::cout << "  (" << scan.reason() << ")";
  std::cout << "\n";
  for (const auto& warning : scan.warnings()) std::cout << "  warning: " << warning << "\n";
}

void Watch(Session& session, const std::string& name) {
  grpc::ClientContext context;
  auto stub = v1::ScanService::NewStub(session.channel());
  v1::WatchScanRequest request;
  request.set_name(name);
  auto reader = stub->WatchScan(&context, request);
  v1::Scan scan;
  {
    ProgressBar bar("scanning");
    while (reader->Read(&scan)) {
      if (session.json) {
        PrintJson(scan);
        continue;
      }
      const double volumes = VolumesOf(scan.spec().pattern());
      const double done = static_cast<double>(scan.volumes_done()) + scan.current_fraction();
      bar.Update(volumes > 0 ? done / volumes : scan.current_fraction(),
                 Count(scan.records_per_second()) + " A-scans/s, " + std::to_string(scan.volumes_done()) + " volumes",
                 volumes > 0 && scan.volumes_per_second() > 0 ? (volumes - done) / scan.volumes_per_second() : 0);
    }
  }
  if (!Check(session, reader->Finish())) return;
  if (!session.json) PrintScan(session, scan);
  if (scan.state() == v1::FAILED) session.exit_code = kFailed;
}

void PrintReport(const v1::PlanScanResponse& plan) {
  const auto& report = plan.report();
  std::cout << plan.plan() << "\n"
            << (report.admitted() ? "fits" : "does NOT fit") << " " << report.device() << ": wanted "
            << Bytes(static_cast<double>(report.wanted_bytes())) << ", free " << Bytes(static_cast<double>(report.free_bytes())) << " of "
            << Bytes(static_cast<double>(report.budget_bytes())) << "\n";
  for (const auto& need : report.needs())
    std::cout << "  " << Bytes(static_cast<double>(need.bytes())) << "  " << need.what() << " (" << need.count() << ")\n";
  if (!report.holders().empty()) std::cout << "held by:\n";
  for (const auto& holder : report.holders()) {
    std::cout << "  " << Bytes(static_cast<double>(holder.bytes())) << "  " << holder.name() << "  " << holder.what() << "  " << holder.title()
              << "\n";
  }
  std::cout << "a volume is " << Bytes(static_cast<double>(report.volume_bytes()));
  if (report.run_bytes() > 0) std::cout << ", the run " << Bytes(static_cast<double>(report.run_bytes()));
  if (report.seconds_to_memory_full() > 0) std::cout << "; memory is full after " << Seconds(report.seconds_to_memory_full());
  if (report.seconds_to_disk_full() > 0) std::cout << "; the disk after " << Seconds(report.seconds_to_disk_full());
  std::cout << "\n";
  if (!report.advice().empty()) std::cout << report.advice() << "\n";
  for (const auto& warning : plan.warnings()) std::cout << "warning: " << warning << "\n";
}

void WriteFile(Session& session, const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (file) return;
  std::cerr << "octavo: could not write " << path << "\n";
  session.exit_code = kFailed;
}

// One line a record: x, y, A-scan (-1: flyback). Long waveforms come in several answers.
void WriteWaveform(Session& session, v1::ScanService::Stub& stub, v1::PlanScanRequest request, const std::string& path) {
  request.set_plot(false);
  request.set_waveform(true);
  std::ostringstream text;
  text.precision(9);
  for (int64_t first = 0, total = 1; first < total;) {
    v1::PlanScanResponse answer;
    request.set_first_sample(static_cast<uint32_t>(first));
    if (!Check(session, stub.PlanScan(session.Context().get(), request, &answer))) return;
    const auto& wave = answer.waveform();
    if (first == 0) text << "# " << wave.sample_rate_hz() << " samples/s\nx_" << wave.unit() << ",y_" << wave.unit() << ",ascan\n";
    for (int i = 0; i < wave.x_size(); ++i) text << wave.x(i) << "," << wave.y(i) << "," << wave.placement(i) << "\n";
    total = wave.total_samples();
    first += std::max(wave.x_size(), 1);
  }
  WriteFile(session, path, text.str());
}

}  // namespace

void AddScanCommands(CLI::App& app, Session& session) {
  auto* scan = app.add_subcommand("scan", "start, look at and end scans")->require_subcommand(1);
  auto flags = std::make_shared<SpecFlags>();

  auto* submit = scan->add_subcommand("submit", "start a scan; prints its name");
  AddSpecFlags(submit, *flags);
  submit->add_flag("--watch", flags->watch, "stay until it ends");
  submit->callback([&session, flags, submit] {
    v1::SubmitScanRequest request;
    *request.mutable_spec() = BuildSpec(*flags, submit);
    v1::Scan answer;
    auto stub = v1::ScanService::NewStub(session.channel());
    if (!Check(session, stub->SubmitScan(session.Context().get(), request, &answer))) return;
    if (session.json) {
      PrintJson(answer);
    } else {
      std::cout << answer.name() << "\n" << std::flush;
    }
    if (flags->watch) Watch(session, answer.name());
  });

  auto* plan = scan->add_subcommand("plan", "what a scan would need and how it would be processed; starts nothing");
  AddSpecFlags(plan, *flags);
  plan->add_option("--waveform", flags->waveform, "write the scanner's waveforms of one volume to this .csv file");
  plan->add_option("--plot", flags->plot, "write a picture of the pattern to this .png file");
  plan->callback([&session, flags, plan] {
    v1::PlanScanRequest request;
    *request.mutable_spec() = BuildSpec(*flags, plan);
    request.set_plot(!flags->plot.empty());
    v1::PlanScanResponse answer;
    auto stub = v1::ScanService::NewStub(session.channel());
    if (!Check(session, stub->PlanScan(session.Context().get(), request, &answer))) return;
    if (session.json) {
      v1::PlanScanResponse words = answer;
      words.clear_plot_png();
      PrintJson(words);
    } else {
      PrintReport(answer);
    }
    if (!answer.report().admitted()) session.exit_code = kFailed;
    if (!flags->plot.empty()) WriteFile(session, flags->plot, answer.plot_png());
    if (!flags->waveform.empty()) WriteWaveform(session, *stub, request, flags->waveform);
  });

  scan->add_subcommand("list", "all scans the server knows, newest first")->callback([&session] {
    auto stub = v1::ScanService::NewStub(session.channel());
    v1::ListScansRequest request;
    do {
      v1::ListScansResponse answer;
      if (!Check(session, stub->ListScans(session.Context().get(), request, &answer))) return;
      for (const auto& one : answer.scans()) PrintScan(session, one);
      request.set_page_token(answer.next_page_token());
    } while (!request.page_token().empty());
  });

  auto name = std::make_shared<std::string>();
  auto* show = scan->add_subcommand("show", "one scan: how it stands, what it does");
  show->add_option("scan", *name, "scans/...")->required();
  show->callback([&session, name] {
    v1::GetScanRequest request;
    request.set_name(*name);
    v1::Scan answer;
    if (!Check(session, v1::ScanService::NewStub(session.channel())->GetScan(session.Context().get(), request, &answer))) return;
    PrintScan(session, answer);
    if (!session.json) std::cout << answer.plan();
  });

  auto* watch = scan->add_subcommand("watch", "progress until the scan ends");
  watch->add_option("scan", *name, "scans/...")->required();
  watch->callback([&session, name] { Watch(session, *name); });

  auto* stop = scan->add_subcommand("stop", "end after the current volume");
  stop->add_option("scan", *name, "scans/...")->required();
  stop->callback([&session, name] {
    v1::StopScanRequest request;
    request.set_name(*name);
    v1::Scan answer;
    if (Check(session, v1::ScanService::NewStub(session.channel())->StopScan(session.Context().get(), request, &answer))) PrintScan(session, answer);
  });
  auto marker = std::make_shared<std::string>();
  auto* mark = scan->add_subcommand("mark", "put a marker at the record that is being processed now");
  mark->add_option("scan", *name, "scans/...")->required();
  mark->add_option("marker", *marker, "its name")->required();
  mark->callback([&session, name, marker] {
    v1::MarkScanRequest request;
    request.set_name(*name);
    request.set_marker(*marker);
    v1::ScanEvent answer;
    if (!Check(session, v1::ScanService::NewStub(session.channel())->MarkScan(session.Context().get(), request, &answer))) return;
    if (session.json) {
      PrintJson(answer);
    } else {
      std::cout << "marked record " << answer.record() << " of volume " << answer.volume_index() << "\n";
    }
  });
  auto* ring =
      scan->add_subcommand("ring", "a ticket for a process on the server's host that feeds a scan with source ring (client/cpp/octavo_ring.h)");
  ring->add_option("scan", *name, "scans/...")->required();
  ring->callback([&session, name] {
    v1::OpenRingRequest request;
    request.set_scan(*name);
    v1::OpenRingResponse answer;
    if (!Check(session, v1::SourceService::NewStub(session.channel())->OpenRing(session.Context().get(), request, &answer))) return;
    if (session.json) {
      PrintJson(answer);
    } else {
      std::cout << answer.socket() << " " << answer.ticket() << "\n";
    }
  });
  auto* cancel = scan->add_subcommand("cancel", "end at once");
  cancel->add_option("scan", *name, "scans/...")->required();
  cancel->callback([&session, name] {
    v1::CancelScanRequest request;
    request.set_name(*name);
    v1::Scan answer;
    if (Check(session, v1::ScanService::NewStub(session.channel())->CancelScan(session.Context().get(), request, &answer)))
      PrintScan(session, answer);
  });
}

}  // namespace octavo::cli
