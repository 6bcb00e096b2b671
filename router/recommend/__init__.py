"""What an operator might change, told in the engines' own flags."""
