# Makes one HTML text of the parts in this folder and writes it as C.
#   cmake -DSOURCE=viewer -DOUTPUT=viewer_page.c [-DHTML=template.html] -P assemble.cmake
#       the page of a replay: what stands before the data and what behind it
#   cmake -DSWEEP=ON -DSOURCE=viewer -DOUTPUT=sweep_viewer.c [-DHTML=template.html] -P assemble.cmake
#       the page of a sweep, in the same way
#   cmake -DFLEET=ON -DSOURCE=viewer -DOUTPUT=fleet_viewer.c [-DHTML=template.html] -P assemble.cmake
#       the page of a fleet, in the same way
#   cmake -DLIVE=ON -DSOURCE=viewer -DOUTPUT=live_page.c [-DHTML=live.html] -P assemble.cmake
#       the live page, and live_page.h beside
if(LIVE)
  set(html live.html)
  set(styles page.css live.css)
  set(scripts format.js pyramid.js view.js theme.js draw.js charts.js overview.js plots.js
    cells.js live_rows.js live_view.js live_charts.js live_figures.js live_events.js live_feed.js
    live_maps.js live_sign.js live.js)
elseif(SWEEP)
  set(html sweep.html)
  set(styles page.css sweep.css)
  set(scripts format.js theme.js sweep.js)
elseif(FLEET)
  set(html fleet.html)
  set(styles page.css fleet.css)
  set(scripts format.js theme.js draw.js charts.js latency.js tables.js fleet_charts.js fleet_maps.js
    fleet_tables.js fleet_failures.js fleet.js)
else()
  set(html page.html)
  set(styles page.css)
  set(scripts data.js format.js pyramid.js view.js theme.js draw.js charts.js tiers.js overview.js
    timeline.js cells.js blockmap.js latency.js comparison.js tables.js plots.js main.js)
endif()

function(join_files variable)
  set(text "")
  foreach(name IN LISTS ARGN)
    file(READ ${SOURCE}/${name} part)
    string(APPEND text "${part}\n")
  endforeach()
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()

file(READ ${SOURCE}/${html} page)
join_files(css ${styles})
join_files(script ${scripts})
string(REPLACE "/*CSS*/" "${css}" page "${page}")
string(REPLACE "/*SCRIPT*/" "${script}" page "${page}")
if(HTML)
  file(WRITE ${HTML} "${page}")
endif()

# An array of numbers: string literals may not be this long.
function(append_array name text)
  file(WRITE ${OUTPUT}.part "${text}")
  file(READ ${OUTPUT}.part bytes HEX)
  file(REMOVE ${OUTPUT}.part)
  string(REPEAT "." 28 line)
  string(REGEX REPLACE "(${line})" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
  file(APPEND ${OUTPUT} "const char ${name}[] = {\n${bytes}};\nconst size_t ${name}_bytes = sizeof ${name};\n")
endfunction()

if(LIVE)
  string(REGEX REPLACE "c$" "h" header ${OUTPUT})
  file(WRITE ${header} "#include <stddef.h>\n\nextern const char quire_live_page[];\n"
    "extern const size_t quire_live_page_bytes;\n")
  file(WRITE ${OUTPUT} "#include \"live_page.h\"\n\n")
  append_array(quire_live_page "${page}")
  return()
endif()

string(FIND "${page}" "@DATA@" place)
if(place LESS 0)
  message(FATAL_ERROR "${html} has no place for the data")
endif()
string(SUBSTRING "${page}" 0 ${place} head)
math(EXPR behind "${place} + 6")
string(SUBSTRING "${page}" ${behind} -1 tail)
file(WRITE ${OUTPUT} "#include \"page/viewer_page.h\"\n\n")
if(SWEEP)
  set(name sweep_viewer)
elseif(FLEET)
  set(name fleet_viewer)
else()
  set(name viewer)
endif()
append_array(${name}_head "${head}")
append_array(${name}_tail "${tail}")
