"""How much processor does each runner get now?"""
