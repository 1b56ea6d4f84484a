# SPDX-License-Identifier: MIT
# The picture of cost against the number of contenders, drawn for a white and for a dark page.
#
#   times, time_count        file of points and how many series it has: a block a series, its name in
#                            quotes at the top; microseconds an acquisition
#   requests, request_count  the same for requests an acquisition, 0 = no second panel
#   picture                  the SVG to write
#
# No background, so that the page's own shows.  Every colour is of a middle lightness and stands out
# by 3:1 or more on white and on #0d1117; text, which needs more, by 4:1.
both = request_count > 0
set terminal svg size (both ? 980 : 760),480 dynamic rounded font "Helvetica,Arial,sans-serif,15"
set output picture
ink = "#7a7f87"
faint = "#9a9fa7"
array shade[8] = ["#2f81f7", "#d9631e", "#2e9e50", "#b264d9", "#d64550", "#a8801a", "#1a9aa8", "#c2559d"]
array shape[8] = [7, 5, 9, 13, 11, 6, 4, 8]

set border 3 linecolor rgb ink
set tics nomirror textcolor rgb ink
set grid ytics xtics linecolor rgb faint linewidth 0.4 dashtype (2,4)
set logscale xy
set xtics ("1" 1, "2" 2, "4" 4, "8" 8, "16" 16, "32" 32, "64" 64, "128" 128, "256" 256)
set format y "%g"
set xlabel "contenders on one name" textcolor rgb ink
set key top left reverse Left invert textcolor rgb ink samplen 2 spacing 1.3
set title offset 0,0.3 textcolor rgb ink

set multiplot layout 1,(both ? 2 : 1)
do for [panel = 1:(both ? 2 : 1)] {
	data = panel == 1 ? times : requests
	count = panel == 1 ? time_count : request_count
	set title (panel == 1 ? "microseconds an acquisition" : "requests an acquisition")
	# Some room around the points, above them for the key; on a log axis that is a factor.
	set autoscale
	set datafile commentschars '#"'
	stats data using 1:2 nooutput
	set datafile commentschars "#"
	set xrange [STATS_min_x / 1.3:STATS_max_x * 1.3]
	set yrange [STATS_min_y / 2:STATS_max_y * (STATS_max_y / STATS_min_y) ** 0.35 * 2]
	# The first series, ours, is the thick one and drawn last, over the others.
	plot for [i = count - 1:0:-1] data index i using 1:2 with linespoints title columnheader(1) \
		linecolor rgb shade[1 + i % 8] pointtype shape[1 + i % 8] pointsize 0.7 \
		linewidth (i == 0 ? 3.2 : 1.6)
}
unset multiplot
