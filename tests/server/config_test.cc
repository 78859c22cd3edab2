#include "server/config.h"

#include <cstdlib>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gpu/base/status.h"
#include "server/base/toml.h"
#include "server/listen_address.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using ::octavo::testing::IsError;
using ::octavo::testing::IsOk;
using ::testing::ElementsAre;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest()
      : path_(::testing::TempDir() + "octavo-config-" + std::to_string(::getpid()) + ".toml") {}
  ~ConfigTest() override { ::unlink(path_.c_str()); }

  absl::Status File(const std::string& text) {
    std::ofstream(path_) << text;
    return ApplyFile(&config_, path_);
  }
  absl::Status Environment(std::vector<std::string> entries) {
    std::vector<char*> pointers;
    for (auto& entry : entries) pointers.push_back(entry.data());
    pointers.push_back(nullptr);
    return ApplyEnvironment(&config_, pointers.data(), &unknown_);
  }

  Config config_;
  std::vector<std::string> unknown_;
  const std::string path_;
};

TEST_F(ConfigTest, EveryKindOfValueComesFromAFile) {
  ASSERT_THAT(File("[listen]\ntcp = ['0.0.0.0:1', '[::1]:2']\n[device]\nbackend = "
                   "'host'\nmemory_fraction = 0.5\nmemory_bytes = 1_000\n"
                   "[drain]\nseconds = 7\n"),
              IsOk());
  EXPECT_THAT(config_.listen_tcp, ElementsAre("0.0.0.0:1", "[::1]:2"));
  EXPECT_EQ(config_.backend, "host");
  EXPECT_EQ(config_.memory_fraction, 0.5);
  EXPECT_EQ(config_.memory_bytes, 1000);
  EXPECT_EQ(config_.drain_seconds, 7);
}

TEST_F(ConfigTest, LaterSourcesWin) {
  ASSERT_THAT(File("[log]\nlevel = 'debug'\nformat = 'json'\n[drain]\nseconds = 1\n"), IsOk());
  ASSERT_THAT(Environment({"OCTAVO_LOG_LEVEL=warning", "OCTAVO_DRAIN_SECONDS=2"}), IsOk());
  ASSERT_THAT(ApplySetting(&config_, "log.level", "error"), IsOk());
  EXPECT_EQ(config_.log_level, "error");
  EXPECT_EQ(config_.drain_seconds, 2);
  EXPECT_EQ(config_.log_format, "json");
}

TEST_F(ConfigTest, APathInAFileMayHoldAComma) {
  ASSERT_THAT(File("[storage]\nroots = ['/a,b', '/c']\n"), IsOk());
  EXPECT_THAT(config_.storage_roots, ElementsAre("/a,b", "/c"));
  ASSERT_THAT(ApplySetting(&config_, "storage.roots", "/x, /y,"), IsOk());
  EXPECT_THAT(config_.storage_roots, ElementsAre("/x", "/y"));
}

TEST_F(ConfigTest, AnUnknownKeyNamesFileLineAndTheNearest) {
  EXPECT_THAT(
      File("[device]\n\nmemory_fracton = 0.5\n"),
      IsError(kInvalid, "device.memory_fracton: is no configuration key (" + path_ + ", line 3)"));
  EXPECT_THAT(File("[device]\nmemory_fracton = 0.5\n"),
              IsError(kInvalid, "did you mean device.memory_fraction?"));
  EXPECT_THAT(File("[nonsense]\n"), IsError(kInvalid, "nonsense: is no configuration key"));
  EXPECT_THAT(File("[log.level]\nx = 1\n"), IsError(kInvalid, "log.level.x"));
  EXPECT_THAT(ApplySetting(&config_, "log.levl", "info"),
              IsError(kInvalid, "did you mean log.level?"));
}

TEST_F(ConfigTest, WrongValuesNameTheKeyAndWhatIsAllowed) {
  EXPECT_THAT(File("[device]\nmemory_fraction = 0.96\n"),
              IsError(kInvalid, "device.memory_fraction: is '0.96'; allowed 0.05 to 0.95"));
  EXPECT_THAT(File("[device]\nmemory_fraction = nan\n"),
              IsError(kInvalid, "device.memory_fraction"));
  EXPECT_THAT(File("[storage]\ncommit_threads = 2.5\n"), IsError(kInvalid, "1 to 64"));
  EXPECT_THAT(File("[log]\nlevel = ['info']\n"), IsError(kInvalid, "log.level: is a list"));
  EXPECT_THAT(File("[storage]\nroots = [1]\n"), IsError(kInvalid, "storage.roots"));
  EXPECT_THAT(File("[log]\nlevel =\n"), IsError(kInvalid, path_ + ", line 2, column "));
  EXPECT_THAT(
      File("[log]\nlevel = info\n"),
      IsError(kInvalid, ": is no TOML; allowed are lines of key = value, with text in quotes"));
  EXPECT_THAT(File("[log]\nlevel = 'info'\nlevel = 'error'\n"),
              IsError(kInvalid, path_ + ", line 3, column "));
  EXPECT_THAT(
      File("[log]\nlevel = 'info'\nlevel = 'error'\n"),
      IsError(kInvalid, ": names what is there already; allowed is each key and table once"));
  for (const char* address :
       {"nonsense", ":1", "host:", "host:65536", "host:-1", "::1:50051", "host:1x", ""}) {
    EXPECT_THAT(File(std::string("[listen]\ntcp = ['") + address + "']\n"),
                IsError(kInvalid, "host:port"))
        << address;
  }
  EXPECT_THAT(ApplySetting(&config_, "metrics.listen", "none"), IsOk());
  EXPECT_THAT(ApplySetting(&config_, "metrics.listen", "None"),
              IsError(kInvalid, "metrics.listen"));
}

TEST_F(ConfigTest, EveryRangeHoldsAtBothEnds) {
  const struct {
    const char* key;
    const char* fine[2];
    const char* bad[2];
  } ranges[] = {
      {"device.memory_fraction", {"0.05", "0.95"}, {"0.049", "0.951"}},
      {"device.memory_bytes", {"0", "1125899906842624"}, {"-1", "1125899906842625"}},
      {"device.host_for_jobs_bytes", {"0", "1125899906842624"}, {"-1", "1125899906842625"}},
      {"device.host_for_jobs", {"true", "false"}, {"2", "host"}},
      {"device.frame_pool_bytes", {"16777216", "1099511627776"}, {"16777215", "1099511627777"}},
      {"storage.commit_threads", {"1", "64"}, {"0", "65"}},
      {"drain.spill_seconds", {"0", "86400"}, {"-0.1", "86400.1"}},
      {"drain.seconds", {"0", "3600"}, {"-0.1", "3600.1"}}};
  for (const auto& range : ranges) {
    for (const char* value : range.fine)
      EXPECT_THAT(ApplySetting(&config_, range.key, value), IsOk());
    for (const char* value : range.bad)
      EXPECT_THAT(ApplySetting(&config_, range.key, value), IsError(kInvalid, range.key));
  }
}

TEST_F(ConfigTest, AFileThatIsNotThereSaysSo) {
  EXPECT_THAT(ApplyFile(&config_, "/nonexistent/octavod.toml"), IsError(kInvalid, "no such file"));
  EXPECT_THAT(ApplyFile(&config_, "/"), IsError(kInvalid, "is a directory"));
}

TEST_F(ConfigTest, EnvironmentErrorsNameTheVariableAndNearMissesAreCollected) {
  EXPECT_THAT(Environment({"OCTAVO_LOG_LEVEL=loud"}),
              IsError(kInvalid, "environment OCTAVO_LOG_LEVEL"));
  ASSERT_THAT(Environment({"OCTAVO_STORAGE_ROOT=/x", "OCTAVO_ADDRESS=127.0.0.1:1", "PATH=/bin",
                           "OCTAVO_LOG_FORMAT=text", "OCTAVO_"}),
              IsOk());
  EXPECT_THAT(unknown_, ElementsAre("OCTAVO_STORAGE_ROOT; did you mean OCTAVO_STORAGE_ROOTS?"));
  // What a slip of the pen was to close must not stay open.
  EXPECT_THAT(Environment({"OCTAVO_SECURITY_TOKEN=/tokens"}),
              IsError(kInvalid,
                      "environment OCTAVO_SECURITY_TOKEN: is no key of the configuration; did you "
                      "mean OCTAVO_SECURITY_TOKENS?"));
  EXPECT_THAT(Environment({"OCTAVO_LISTEN_LOOPBACKROLE=none"}), IsError(kInvalid, "LOOPBACK_ROLE"));
}

TEST_F(ConfigTest, WhatTheSourcesSayTogetherIsNamedWithItsPlace) {
  const auto load = [&](const std::string& text, std::map<std::string, std::string> flags = {}) {
    std::ofstream(path_) << text;
    return LoadConfig({.file = path_, .flags = std::move(flags)}, &unknown_).status();
  };
  const std::string start = "[storage]\nroots = ['/a', '/b']\n[quota]\nscans = 2\n";
  const absl::Status other = load(start + "roots = ['ada=/elsewhere']\n");
  EXPECT_THAT(other, IsError(kInvalid, "quota.roots: is '/elsewhere'"));
  EXPECT_THAT(other, IsError(kInvalid, " (" + path_ + ", line 5)"));
  EXPECT_EQ(InfoOf(other).field, "quota.roots");
  EXPECT_THAT(load(start + "jobs = 1\nexceptions = ['ada scans=1', 'ada jobs=1']\n"),
              IsError(kInvalid, " (" + path_ + ", line 6)"));
  EXPECT_THAT(load("[drain]\ncommit_root = '/none'\n"), IsError(kInvalid, ", line 2)"));
  // The value is not from the file.
  const absl::Status by_flag =
      load(start + "roots = ['ada=/a']\n", {{"quota.roots", "ada=/elsewhere"}});
  EXPECT_THAT(by_flag, IsError(kInvalid, "quota.roots: is '/elsewhere'"));
  EXPECT_THAT(std::string(by_flag.message()), ::testing::Not(::testing::HasSubstr("line ")));
}

TEST_F(ConfigTest, AFileThatCannotBeReadSaysWhy) {
  // Opens, and fails at the first byte.
  EXPECT_THAT(LoadConfig({.file = "/proc/self/mem", .flags = {}}, &unknown_).status(),
              IsError(kInvalid, "/proc/self/mem: cannot be read: Input/output error"));
  EXPECT_THAT(LoadConfig({.file = "/proc/self/mem/c.toml", .flags = {}}, &unknown_).status(),
              IsError(kInvalid, "/proc/self/mem/c.toml"));
  const std::string long_name = "/" + std::string(300, 'x');
  EXPECT_THAT(LoadConfig({.file = long_name, .flags = {}}, &unknown_).status(),
              IsError(kInvalid, long_name + ": cannot be read: File name too long"));
}

TEST_F(ConfigTest, ANumberThatIsTooLargeIsNamedWithItsKeyAndLine) {
  const std::string where = " (" + path_ + ", line ";
  EXPECT_THAT(File("[listen]\nmemory_bytes = 1\n"), IsError(kInvalid, "listen.memory_bytes"));
  EXPECT_THAT(
      File("# scans = 1\n[quota]\njobs = 1\nscans = 99999999999999999999 # many\n"),
      IsError(kInvalid, "quota.scans: is '99999999999999999999'; allowed a whole number, 0 to "));
  EXPECT_THAT(File("[spill]\ndisk_bytes = 1e9\n"),
              IsError(kInvalid,
                      "spill.disk_bytes: is '1e+09'; allowed a whole number of bytes, 0 to "
                      "1152921504606846976" +
                          where + "2)"));
  EXPECT_THAT(File("[quota]\nscans = 9223372036854775808\n"), IsError(kInvalid, where + "2)"));
  EXPECT_THAT(
      File("listen.stalled_seconds = 1e999\n"),
      IsError(kInvalid, "listen.stalled_seconds: is '1e999'; allowed 1 to 3600" + where + "1)"));
  // A list, and a key that there is not.
  EXPECT_THAT(File("[storage]\nroots = [\n  99999999999999999999 ]\n"),
              IsError(kInvalid,
                      "storage.roots: is 99999999999999999999, which is too large; "
                      "allowed are numbers up to 9223372036854775807" +
                          where + "3)"));
  EXPECT_THAT(File("[a.b]\nc = 0xFFFFFFFFFFFFFFFFFF\n"),
              IsError(kInvalid, "a.b.c: is 0xFFFFFFFFFFFFFFFFFF, which is too large"));
  // What is no number at all is still no TOML.
  EXPECT_THAT(File("[quota]\nscans = 1e\n"), IsError(kInvalid, "is no TOML"));
}

TEST_F(ConfigTest, DefaultsNeedNoFileAndPathsBecomeAbsolute) {
  ASSERT_THAT(Finalise(&config_), IsOk());
  EXPECT_THAT(config_.listen_tcp, ElementsAre("127.0.0.1:50051"));
  EXPECT_EQ(config_.state_dir.front(), '/');
  EXPECT_EQ(config_.listen_unix, config_.state_dir + "/octavo.sock");
  EXPECT_EQ(config_.replay_roots, config_.storage_roots);
  EXPECT_TRUE(config_.storage_create_roots) << "the default root is made";

  Config relative;
  relative.state_dir = "s";
  relative.storage_roots = {"./d/../e"};
  relative.listen_unix = "u.sock";
  ASSERT_THAT(Finalise(&relative), IsOk());
  EXPECT_EQ(relative.storage_roots[0].front(), '/');
  EXPECT_FALSE(relative.storage_create_roots) << "one that somebody named is not";
  EXPECT_THAT(relative.storage_roots[0], ::testing::EndsWith("/e"));
  EXPECT_EQ(relative.listen_unix.front(), '/');
}

// It would become a folder of that name, wherever octavod was started.
TEST_F(ConfigTest, ATildeIsNoHome) {
  for (const char* key : {"state.dir", "spill.dir", "history.dir", "audit.dir", "storage.roots",
                          "storage.replay_roots"}) {
    for (const std::string path : {"~", "~/octavo"}) {
      Config config;
      ASSERT_THAT(ApplySetting(&config, key, path), IsOk());
      const absl::Status refused = Finalise(&config);
      EXPECT_THAT(refused, IsError(kInvalid, std::string(key) + ": is '" + path +
                                                 "'; the configuration is no shell"));
      EXPECT_EQ(InfoOf(refused).field, key);
    }
    for (const std::string path : {"/a/~/b", "~ada", "./~"}) {
      Config config;
      ASSERT_THAT(ApplySetting(&config, key, path), IsOk());
      EXPECT_THAT(Finalise(&config), IsOk()) << key << " " << path;
    }
  }
}

TEST_F(ConfigTest, AnotherWordForNoneIsNoPath) {
  for (const char* key : {"history.dir", "audit.dir", "listen.unix", "handoff.unix"}) {
    for (const char* word : {"None", "NONE", "off", "no", "False", "disabled"}) {
      Config config;
      ASSERT_THAT(ApplySetting(&config, key, word), IsOk());
      EXPECT_THAT(Finalise(&config),
                  IsError(kInvalid, std::string(key) + ": is '" + word + "'; did you mean none?"));
    }
    Config config;
    ASSERT_THAT(ApplySetting(&config, key, "./off"), IsOk());
    EXPECT_THAT(Finalise(&config), IsOk()) << key;
  }
}

TEST_F(ConfigTest, SomethingMustListen) {
  config_.listen_tcp.clear();
  config_.listen_unix = "none";
  EXPECT_THAT(Finalise(&config_), IsError(kInvalid, "nothing to listen on"));
}

TEST_F(ConfigTest, TheHandOverIsOffUnlessItHasASocket) {
  config_.state_dir = "/s";
  config_.storage_roots = {"/d"};
  Config off = config_;
  ASSERT_THAT(Finalise(&off), IsOk());
  EXPECT_EQ(off.handoff_unix, "");
  ASSERT_THAT(ApplySetting(&config_, "handoff.unix", "auto"), IsOk());
  ASSERT_THAT(ApplySetting(&config_, "handoff.mode", "0600"), IsOk());
  ASSERT_THAT(Finalise(&config_), IsOk());
  EXPECT_EQ(config_.handoff_unix, "/s/handoff.sock");
  EXPECT_EQ(config_.handoff_mode, "0600");
  for (const char* bad : {"", "0888", "rw", "0066", "01777", "-660"}) {
    EXPECT_THAT(ApplySetting(&config_, "handoff.mode", bad), IsError(kInvalid, "0600 to 0777"))
        << bad;
  }
  EXPECT_THAT(ApplySetting(&config_, "handoff.grace_seconds", "-1"),
              IsError(kInvalid, "handoff.grace_seconds"));
}

TEST_F(ConfigTest, QuotasHaveExceptionsAndRoots) {
  ASSERT_THAT(File("[storage]\nroots = ['/a', '/b']\n[quota]\nscans = 2\n"
                   "exceptions = ['ada scans=5', 'role:admin jobs=9']\n"
                   "roots = ['ada=/a', '*=/b']\n"),
              IsOk());
  ASSERT_THAT(Finalise(&config_), IsOk());
  const memory::QuotaRules rules = QuotaRulesOf(config_);
  using enum memory::QuotaKind;
  const security::Owner ada{.name = "ada", .role = security::Role::kOperator};
  const security::Owner bob{.name = "bob", .role = security::Role::kOperator};
  const security::Owner root{.name = "root", .role = security::Role::kAdmin};
  EXPECT_EQ(rules.LimitOf(kScans, ada), 5);
  EXPECT_EQ(rules.LimitOf(kScans, bob), 2);
  EXPECT_EQ(rules.LimitOf(kJobs, root), 9);
  EXPECT_EQ(rules.LimitOf(kJobs, bob), 0) << "no limit";
  // Half of what all together may have.
  EXPECT_EQ(rules.LimitOf(kWatches, bob), 128);
  EXPECT_EQ(rules.LimitOf(kPlans, bob), 8);
  EXPECT_EQ(rules.LimitOf(kSubmits, bob), 32);
  EXPECT_EQ(rules.LimitOf(kRenderings, bob), 16);
  EXPECT_EQ(rules.LimitOf(kMosaics, bob), 8);
  EXPECT_EQ(rules.LimitOf(kDeviceBytes, bob), 0);
  const security::RootRights rights = RootRightsOf(config_);
  EXPECT_THAT(*rights.RootsOf(ada), ElementsAre("/a"));
  EXPECT_THAT(*rights.RootsOf(bob), ElementsAre("/b"));
  EXPECT_FALSE(rights.RootsOf(root).has_value());

  EXPECT_THAT(ApplySetting(&config_, "quota.scans", "-1"), IsError(kInvalid, "quota.scans"));
  EXPECT_THAT(ApplySetting(&config_, "quota.exceptions", "ada scan=1"),
              IsError(kInvalid, "quota.exceptions: has 'scan=1'"));
  EXPECT_THAT(ApplySetting(&config_, "quota.roots", "ada"), IsError(kInvalid, "quota.roots: is"));
  Config other = config_;
  other.quota_roots = {"ada=/elsewhere"};
  EXPECT_THAT(Finalise(&other), IsError(kInvalid, "quota.roots: is '/elsewhere'"));
  other = config_;
  other.storage_roots.push_back("/a/inner");
  EXPECT_THAT(Finalise(&other), IsError(kInvalid,
                                        "quota.roots: keeps principals apart by roots, "
                                        "and the root /a/inner lies in another one"));
  other.quota_roots.clear();
  EXPECT_THAT(Finalise(&other), IsOk());
  other = config_;
  other.quota_exceptions = {"ada scans=1", "ada jobs=1"};
  EXPECT_THAT(Finalise(&other), IsError(kInvalid, "quota.exceptions: has ada a second time"));
}

TEST_F(ConfigTest, ChangesNameEveryKeyThatDiffers) {
  EXPECT_TRUE(ChangesOf(config_, config_).empty());
  // Each key with a non-default value of its type.
  std::set<std::string> changed;
  for (const auto& key : ConfigKeys()) {
    for (const char* value :
         {"127.0.0.1:7", "json",      "error",      "host",     "Fake",       "3",
          "0.33",        "33554432",  "1000000007", "0600",     "/elsewhere", "true",
          "false",       "buffered",  "operator",   "optional", "lose",       "npy",
          "ada scans=1", "ada=/data", "idle"}) {
      Config other;
      if (!ApplySetting(&other, key.name, value).ok()) continue;
      const auto changes = ChangesOf(config_, other);
      if (changes.empty() && value == std::string("true")) continue;  // its default
      ASSERT_EQ(changes.size(), 1u) << key.name;
      EXPECT_EQ(changes[0].key, key.name);
      EXPECT_EQ(changes[0].to, value);
      changed.insert(key.name);
      break;
    }
  }
  for (const auto& key : ConfigKeys()) EXPECT_TRUE(changed.contains(key.name)) << key.name;
  Config several;
  several.storage_roots = {"/a", "/b"};
  several.drain_seconds = 2.5;
  const auto changes = ChangesOf(config_, several);
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].from + " " + changes[0].to, " /a,/b");
  EXPECT_EQ(changes[1].from + " " + changes[1].to, "20 2.5");
}

TEST_F(ConfigTest, WhatIsLoadedTwiceIsTheSame) {
  ASSERT_THAT(File("[log]\nlevel = 'debug'\n[drain]\nseconds = 1\n"), IsOk());
  const ConfigSources sources{.file = path_, .flags = {{"drain.seconds", "4"}}};
  std::vector<std::string> unknown;
  ASSERT_OK_AND_ASSIGN(const Config first, LoadConfig(sources, &unknown));
  ASSERT_OK_AND_ASSIGN(const Config second, LoadConfig(sources, &unknown));
  EXPECT_EQ(first, second);
  EXPECT_EQ(first.log_level, "debug");
  EXPECT_EQ(first.drain_seconds, 4);
  EXPECT_THAT(LoadConfig({.file = path_, .flags = {{"drain.seconds", "-4"}}}, &unknown),
              IsError(kInvalid, "drain.seconds"));
}

// Each address alone, as a gRPC listener and as the page.
TEST_F(ConfigTest, WhatOtherHostsCanReachIsRefusedUnlessItIsSaidToBeInsecure) {
  const auto with = [&](const char* key, const std::string& address, bool insecure) {
    Config config;
    EXPECT_THAT(ApplySetting(&config, key, address), IsOk()) << address;
    EXPECT_THAT(ApplySetting(&config, "security.insecure", insecure ? "true" : "false"), IsOk());
    absl::Status status = Finalise(&config);
    if (insecure && std::string(key) == "listen.tcp")
      EXPECT_EQ(OpenAddresses(config), std::vector<std::string>{address});
    return status;
  };
  for (const char* key : {"listen.tcp", "metrics.listen"}) {
    for (const char* closed : {"127.0.0.1:0", "127.8.9.10:1", "[::1]:50051", "localhost:50051",
                               "[::ffff:127.0.0.1]:1", "127.1:1"}) {
      EXPECT_THAT(with(key, closed, false), IsOk()) << closed;
    }
    for (const char* open :
         {"0.0.0.0:50051", "[::]:1", "192.0.2.7:0", "10.0.0.1:65535", "[2001:db8::1]:7",
          "[fe80::1]:7", "[::ffff:10.0.0.1]:1", "0:1", "128.0.0.1:1", "255.255.255.255:1"}) {
      EXPECT_THAT(with(key, open, false), IsError(kInvalid, "security.insecure = true")) << open;
      EXPECT_THAT(with(key, open, false), IsError(kInvalid, key)) << open;
      EXPECT_THAT(with(key, open, true), IsOk()) << open;
    }
    // A text that a library might read as several addresses, or as one of another kind, is not a
    // valid name.
    for (const char* nothing :
         {"80,127.0.0.1:9464", "unix:7", "ipv4:7", "no-such-host.invalid:1"}) {
      if (std::string(key) == "listen.tcp" && std::string(nothing).find(',') != std::string::npos)
        continue;  // a list of two addresses
      EXPECT_THAT(with(key, nothing, false), IsError(kInvalid, "does not resolve")) << nothing;
    }
  }
  // A name counts as the addresses that it resolves to.
  char name[256] = "";
  ASSERT_EQ(::gethostname(name, sizeof name - 1), 0);
  const std::string own = std::string(name) + ":1";
  if (const absl::Status closed = CheckLoopback(own); !absl::IsNotFound(closed))
    EXPECT_EQ(with("listen.tcp", own, false).ok(), closed.ok()) << own;
  // An insecure address as the second of a list; Unix sockets are local to this host.
  ASSERT_THAT(ApplySetting(&config_, "listen.tcp", "127.0.0.1:1,0.0.0.0:2"), IsOk());
  EXPECT_THAT(Finalise(&config_), IsError(kInvalid, "0.0.0.0:2"));
  Config none;
  none.listen_tcp.clear();
  none.metrics_listen = "none";
  none.listen_unix = "/run/octavo.sock";
  EXPECT_THAT(Finalise(&none), IsOk());
  EXPECT_TRUE(OpenAddresses(none).empty());
}

// Started by hand it is the program of one user; with a file it is a service.
TEST_F(ConfigTest, WithoutAFileProgramsOfThisHostMayOperate) {
  std::vector<std::string> unknown;
  ASSERT_OK_AND_ASSIGN(const Config by_hand, LoadConfig({}, &unknown));
  EXPECT_EQ(by_hand.listen_loopback_role, "operator");
  ASSERT_THAT(File("[log]\nlevel = 'debug'\n"), IsOk());
  ASSERT_OK_AND_ASSIGN(const Config service, LoadConfig({.file = path_, .flags = {}}, &unknown));
  EXPECT_EQ(service.listen_loopback_role, "viewer");
  for (const auto& [key, value] :
       {std::pair("security.tokens", "/tokens"), std::pair("security.insecure", "true")}) {
    ASSERT_OK_AND_ASSIGN(const Config shared,
                         LoadConfig({.file = "", .flags = {{key, value}}}, &unknown));
    EXPECT_EQ(shared.listen_loopback_role, "viewer") << key;
  }
  for (const char* role : {"none", "viewer", "operator", "admin"}) {
    for (const std::string& file : {std::string(), path_}) {
      ASSERT_OK_AND_ASSIGN(
          const Config said,
          LoadConfig({.file = file, .flags = {{"listen.loopback_role", role}}}, &unknown));
      EXPECT_EQ(said.listen_loopback_role, role);
    }
  }
  EXPECT_THAT(
      ApplySetting(&config_, "listen.loopback_role", "root"),
      IsError(kInvalid, "listen.loopback_role: is 'root'; allowed none, viewer, operator, admin"));
}

TEST_F(ConfigTest, ATokenInsteadOfItsFileIsNotShown) {
  config_.security_tokens = "octavo_0123abcd_" + std::string(64, 'a');
  const absl::Status refused = Finalise(&config_);
  EXPECT_THAT(refused, IsError(kInvalid, "security.tokens: is a token and not the name of a file"));
  EXPECT_EQ(refused.message().find("aaaa"), absl::string_view::npos);
}

TEST_F(ConfigTest, TheFileOfTokensIsAnAbsolutePath) {
  ASSERT_THAT(Finalise(&config_), IsOk());
  EXPECT_EQ(config_.security_tokens, "");
  Config relative;
  ASSERT_THAT(ApplySetting(&relative, "security.tokens", "t/../tokens"), IsOk());
  ASSERT_THAT(Finalise(&relative), IsOk());
  EXPECT_THAT(relative.security_tokens, ::testing::StartsWith("/"));
  EXPECT_THAT(relative.security_tokens, ::testing::EndsWith("/tokens"));
}

// Tokens and data could be read on the way; and without a login anybody could come in.
TEST_F(ConfigTest, OtherHostsNeedTlsAndALogin) {
  const auto with = [](const std::vector<std::pair<std::string, std::string>>& settings) {
    Config config;
    EXPECT_THAT(ApplySetting(&config, "listen.tcp", "0.0.0.0:0"), IsOk());
    for (const auto& [key, value] : settings)
      EXPECT_THAT(ApplySetting(&config, key, value), IsOk());
    absl::Status status = Finalise(&config);
    EXPECT_EQ(OpenAddresses(config).empty(), status.ok() && !config.security_insecure);
    return status;
  };
  const std::pair<std::string, std::string> certificate{"listen.tls.certificate", "/c"},
      key{"listen.tls.key", "/k"}, ca{"listen.tls.client_ca", "/a"},
      tokens{"security.tokens", "/t"}, insecure{"security.insecure", "true"};
  EXPECT_THAT(with({}), IsError(kInvalid, "there is no TLS"));
  EXPECT_THAT(with({tokens}), IsError(kInvalid, "there is no TLS"));
  EXPECT_THAT(with({certificate, key}), IsError(kInvalid, "clients have no way to log in"));
  EXPECT_THAT(with({certificate, key, tokens}), IsOk());
  EXPECT_THAT(with({certificate, key, ca}), IsOk());
  EXPECT_THAT(with({certificate, key, insecure}), IsOk());
  EXPECT_THAT(with({tokens, insecure}), IsOk());
  // The metrics page has neither.
  EXPECT_THAT(with({certificate, key, tokens, {"metrics.listen", "0.0.0.0:1"}}),
              IsError(kInvalid, "metrics.listen"));
}

TEST_F(ConfigTest, TheBudgetOfTheHostForJobsNeedsTheDevice) {
  const auto with = [](int64_t bytes, bool there) {
    Config config;
    config.host_for_jobs_bytes = bytes;
    config.host_for_jobs = there;
    return Finalise(&config);
  };
  EXPECT_THAT(with(4096, false),
              IsError(kInvalid,
                      "device.host_for_jobs_bytes: is 4096, but there is no devices/host: "
                      "device.host_for_jobs is false; allowed 0, or device.host_for_jobs = true"));
  EXPECT_THAT(with(4096, true), IsOk());
  EXPECT_THAT(with(0, true), IsOk());
  EXPECT_THAT(with(0, false), IsOk());
}

TEST_F(ConfigTest, KeysOfTlsBelongTogether) {
  const auto with = [](const std::vector<std::pair<std::string, std::string>>& settings) {
    Config config;
    for (const auto& [key, value] : settings)
      EXPECT_THAT(ApplySetting(&config, key, value), IsOk());
    return Finalise(&config);
  };
  EXPECT_THAT(with({{"listen.tls.certificate", "/c"}}),
              IsError(kInvalid, "listen.tls.key: is not given"));
  EXPECT_THAT(with({{"listen.tls.key", "/k"}}),
              IsError(kInvalid, "listen.tls.certificate: is not given"));
  EXPECT_THAT(with({{"listen.tls.client_ca", "/a"}}), IsError(kInvalid, "listen.tls.client_ca"));
  EXPECT_THAT(
      with({{"security.certificates", "/t"}}),
      IsError(kInvalid, "security.certificates: is of no use without listen.tls.client_ca"));
  EXPECT_THAT(ApplySetting(&config_, "listen.tls.client_certificates", "none"),
              IsError(kInvalid, "required, optional"));
  EXPECT_THAT(ApplySetting(&config_, "security.certificate_role", "root"),
              IsError(kInvalid, "none, viewer, operator, admin"));
  EXPECT_THAT(ApplySetting(&config_, "listen.tls.old_connections_seconds", "604801"),
              IsError(kInvalid, "0 to 604800"));
}

TEST_F(ConfigTest, FilesOfTrustMayBeCredentialsOfSystemd) {
  const auto finalised = [](const char* tokens) {
    Config config;
    EXPECT_THAT(ApplySetting(&config, "security.tokens", tokens), IsOk());
    const absl::Status status = Finalise(&config);
    return status.ok() ? absl::StatusOr<std::string>(config.security_tokens) : status;
  };
  ::unsetenv("CREDENTIALS_DIRECTORY");
  EXPECT_THAT(finalised("credential:tokens"),
              IsError(kInvalid, "security.tokens: is 'credential:tokens', but systemd gave"));
  ::setenv("CREDENTIALS_DIRECTORY", "/run/credentials/octavod.service", 1);
  EXPECT_EQ(*finalised("credential:tokens"), "/run/credentials/octavod.service/tokens");
  EXPECT_THAT(finalised("credential:../tokens"), IsError(kInvalid, "a name without /"));
  ::unsetenv("CREDENTIALS_DIRECTORY");
}

TEST_F(ConfigTest, MirrorsNeedATierOnDisk) {
  EXPECT_EQ(config_.spill_mirror, "off");
  EXPECT_THAT(ApplySetting(&config_, "spill.mirror", "always"),
              IsError(kInvalid, "spill.mirror: is 'always'; allowed off, idle"));
  ASSERT_THAT(ApplySetting(&config_, "spill.mirror", "idle"), IsOk());
  Config with = config_;
  EXPECT_THAT(Finalise(&with), IsOk());
  Config without = config_;
  without.spill_disk_bytes = 0;
  EXPECT_THAT(Finalise(&without), IsError(kInvalid, "spill.mirror: is idle"));
  EXPECT_THAT(Finalise(&without), IsError(kInvalid, "spill.disk_bytes is 0"));
  without.spill_mirror = "off";
  EXPECT_THAT(Finalise(&without), IsOk());
}

TEST_F(ConfigTest, WhatAStopDoesWithHeldVolumes) {
  for (const char* fine : {"spill", "commit", "lose"})
    EXPECT_THAT(ApplySetting(&config_, "drain.on_held", fine), IsOk());
  EXPECT_THAT(ApplySetting(&config_, "drain.on_held", "keep"),
              IsError(kInvalid, "drain.on_held: is 'keep'; allowed spill, commit, lose"));
  EXPECT_THAT(ApplySetting(&config_, "drain.commit_format", "png"), IsError(kInvalid, "ome.zarr"));
  config_.storage_roots = {"/a", "/b"};
  Config first = config_;
  ASSERT_THAT(Finalise(&first), IsOk());
  EXPECT_EQ(first.drain_commit_root, "/a");
  Config second = config_;
  second.drain_commit_root = "/b/../b";
  ASSERT_THAT(Finalise(&second), IsOk());
  EXPECT_EQ(second.drain_commit_root, "/b");
  config_.drain_commit_root = "/c";
  EXPECT_THAT(
      Finalise(&config_),
      IsError(kInvalid, "drain.commit_root: is '/c'; allowed one of storage.roots (/a, /b)"));
}

TEST_F(ConfigTest, AFlagIsTrueOrFalse) {
  ASSERT_THAT(File("[security]\ninsecure = true\n"), IsOk());
  EXPECT_TRUE(config_.security_insecure);
  ASSERT_THAT(File("[security]\ninsecure = false\n"), IsOk());
  EXPECT_FALSE(config_.security_insecure);
  for (const char* bad : {"1", "yes", "True", ""})
    EXPECT_THAT(ApplySetting(&config_, "security.insecure", bad), IsError(kInvalid, "true, false"))
        << bad;
}

TEST_F(ConfigTest, TheHistoryHasItsFolderOrIsOff) {
  config_.state_dir = "/state";
  ASSERT_THAT(Finalise(&config_), IsOk());
  EXPECT_EQ(config_.history_dir, "/state/history");
  config_.history_dir = "/elsewhere/../h";
  ASSERT_THAT(Finalise(&config_), IsOk());
  EXPECT_EQ(config_.history_dir, "/h");
  config_.history_dir = "none";
  ASSERT_THAT(Finalise(&config_), IsOk());
  EXPECT_EQ(config_.history_dir, "");
  EXPECT_THAT(ApplySetting(&config_, "history.kept", "0"), IsError(kInvalid, "1 to 100000"));
  EXPECT_THAT(ApplySetting(&config_, "history.days", "-1"), IsError(kInvalid, "0 to 36500"));
}

TEST_F(ConfigTest, TheAuditLogHasItsFolderOrIsOff) {
  config_.state_dir = "/state";
  ASSERT_THAT(Finalise(&config_), IsOk());
  EXPECT_EQ(config_.audit_dir, "/state/audit");
  config_.audit_dir = "/elsewhere/../a";
  ASSERT_THAT(Finalise(&config_), IsOk());
  EXPECT_EQ(config_.audit_dir, "/a");
  config_.audit_dir = "none";
  ASSERT_THAT(Finalise(&config_), IsOk());
  EXPECT_EQ(config_.audit_dir, "");
  EXPECT_THAT(ApplySetting(&config_, "audit.file_bytes", "1000"), IsError(kInvalid, "65536"));
  EXPECT_THAT(ApplySetting(&config_, "audit.kept", "-1"), IsError(kInvalid, "0 to 1000000"));
}

// deploy/octavod.toml shows each key once: as a setting if the default is fixed, behind '#' if it
// depends on the machine.
TEST_F(ConfigTest, TheExampleFileShowsEveryKeyWithItsDefault) {
  const char* source = std::getenv("OCTAVO_SOURCE_DIR");
  ASSERT_NE(source, nullptr) << "run by ctest";
  const std::string path = std::string(source) + "/deploy/octavod.toml";
  ASSERT_THAT(ApplyFile(&config_, path), IsOk());
  ASSERT_THAT(Finalise(&config_), IsOk());
  Config plain;
  ASSERT_THAT(Finalise(&plain), IsOk());
  EXPECT_EQ(config_, plain) << "a value in the example file is not the default";

  std::ifstream file(path);
  std::stringstream all;
  for (std::string line; std::getline(file, line);) {
    const bool key_behind_hash = line.size() > 1 && line[0] == '#' && line[1] != ' ';
    all << (key_behind_hash ? line.substr(1) : line) << "\n";
  }
  std::set<std::string> shown, known;
  const std::function<void(const toml::table&, const std::string&)> show =
      [&](const toml::table& table, const std::string& before) {
        for (const auto& [key, value] : table) {
          const std::string name = before + std::string(key.str());
          if (value.is_table())
            show(*value.as_table(), name + ".");
          else
            shown.insert(name);
        }
      };
  show(toml::parse(all.str()), "");
  // The values after '#' are defaults, too: those of root.
  if (::geteuid() == 0) {
    Config uncommented;
    std::ofstream(path_) << all.str();
    ASSERT_THAT(ApplyFile(&uncommented, path_), IsOk());
    ASSERT_THAT(Finalise(&uncommented), IsOk());
    EXPECT_FALSE(uncommented.storage_create_roots) << "roots that somebody names are not made";
    uncommented.storage_create_roots = plain.storage_create_roots;
    EXPECT_EQ(uncommented, plain) << "a value behind '#' in the example file is not root's default";
  }
  for (const auto& key : ConfigKeys()) {
    known.insert(key.name);
    EXPECT_FALSE(key.help.empty()) << key.name;
  }
  EXPECT_EQ(shown, known);
}

}  // namespace
}  // namespace octavo
