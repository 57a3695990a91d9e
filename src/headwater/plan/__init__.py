"""What must change?"""
