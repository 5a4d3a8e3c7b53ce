// SPDX-License-Identifier: Apache-2.0
#include "cli/report_command.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.hpp"
#include "cli/command_arguments.hpp"
#include "os/replaced_file.hpp"
#include "report/live_server.hpp"
#include "report/page.hpp"
#include "report/page_data.hpp"
#include "report/report.hpp"

namespace accel::program {
namespace {

constexpr char kReportHelp[] =
    R"(Writes a page that shows the runs whose folders are DIR or below it: curves, throughput, where the time goes by rank,
memory, a comparison of the runs, their configuration, images, tables and traces. It reads metrics.jsonl and the traces
profile_RANK.json or profile_merged.json. The page is one file that a browser opens without a network.
With --live the page is served while the runs go on, until Ctrl-C.
)";

bool is_empty(const report::Run& run) {
  return run.starts.empty() && run.series.empty() && run.configuration.empty() && run.histograms.empty() &&
         run.pictures.empty() && run.tables.empty() && run.notes.empty() && run.artifacts.empty() &&
         run.trace.num_events == 0;
}

void say_problems(const report::Run& run) {
  for (const report::Problems* const problems : {&run.problems, &run.trace_problems})
    for (const report::Problem& problem : problems->all())
      std::fprintf(stderr, "accel report: %s: %s\n", run.name.c_str(), words_of(problem).c_str());
}

int write_report(const std::vector<std::string>& folders, const std::string& output) {
  report::Report report(folders, false);
  const std::vector<const report::Run*> runs = report.runs();
  require(!runs.empty(), Status::kNotFound, "there is nothing to show in '", folders.front(), "'",
          folders.size() > 1 ? " and the other folders" : "",
          "; expected metrics.jsonl, which log_with=\"jsonl\" writes, or profile_RANK.json in it or below it");
  report.update();
  report.finish();
  const std::vector<const report::Run*> read = report.runs();
  std::for_each(read.begin(), read.end(), [](const report::Run* run) { say_problems(*run); });
  require(!std::all_of(read.begin(), read.end(), [](const report::Run* run) { return is_empty(*run); }),
          Status::kCorrupt, "nothing could be read in '", folders.front(), "'",
          folders.size() > 1 ? " and the other folders" : "", "; expected lines as the JSON-lines tracker writes them");
  replace_file(output, report::page(report::page_data(report, 0), 0));
  std::printf("%s\n", output.c_str());
  return 0;
}

int serve_report(const std::vector<std::string>& folders, const report::LiveOptions& options) {
  report::Report report(folders, true);
  report::LiveServer server(report, options);
  std::printf("%s\n", server.address().c_str());
  std::fflush(stdout);
  server.run();
  return 0;
}

}  // namespace

int run_report(const std::vector<std::string>& arguments) {
  CLI::App app(kReportHelp, "accel report");
  std::string output, host;
  int port = -1;
  double seconds = 0;
  bool is_live = false;
  app.add_option("--output", output, "File for the page. Default report.html")->type_name("FILE")->group("Options");
  app.add_flag("--live", is_live, "Serves the page and what is added to it.")->group("Live");
  app.add_option("--port", port, "Port of the server. Default 0, any that is free")
      ->type_name("N")
      ->check(CLI::Range(0, 65535))
      ->group("Live");
  app.add_option(
         "--host", host,
         "Address of the server. Default 127.0.0.1, which other machines cannot reach. Whoever reaches another one "
         "sees the runs")
      ->type_name("ADDRESS")
      ->group("Live");
  app.add_option("--interval", seconds, "Seconds between updates of the page. Default 2")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.1, 3600.0))
      ->group("Live");
  add_help(app, " DIR [DIR ...] [OPTION ...]");
  const ParsedArguments parsed = parse_anywhere(app, arguments);
  if (is_shown(parsed)) return 0;
  require(!parsed.rest.empty(), Status::kInvalidArgument,
          "no folder is given; expected accel report DIR [DIR ...] [OPTION ...]");
  require(is_live || (port < 0 && host.empty() && seconds == 0), Status::kInvalidArgument,
          port >= 0       ? "--port"
          : !host.empty() ? "--host"
                          : "--interval",
          " is given; expected --live beside it");
  require(!is_live || output.empty(), Status::kInvalidArgument,
          "--output is given beside --live, which writes no file; ", "expected one of them");
  if (!is_live) return write_report(parsed.rest, output.empty() ? "report.html" : output);
  report::LiveOptions options;
  if (!host.empty()) options.host = host;
  if (port >= 0) options.port = port;
  if (seconds > 0) options.interval = static_cast<int>(std::lround(seconds * 1e3));
  return serve_report(parsed.rest, options);
}

}  // namespace accel::program
