"""Planted compiler bugs: does the differential suite catch them?"""
