"""Figures for papers: the map, retrieval rows and the quad-grid."""

from rpml.pages.figures.draw import FigureOptions, draw_figures, figure_names

__all__ = ["FigureOptions", "draw_figures", "figure_names"]
