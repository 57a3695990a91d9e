"""What did the user write?"""
